// copies the header of each column to its cells, for screens that are too narrow for tables
for (const table of document.querySelectorAll('article table:not([class])')) {
  const headers = [...table.querySelectorAll('thead th')].map(cell => cell.textContent.trim())
  for (const row of table.querySelectorAll('tbody tr'))
    [...row.cells].forEach((cell, i) => { if (i && headers[i]) cell.dataset.header = headers[i] })
}

// replaces the text nodes below elements by what `parts` returns for their text
function rewrite(elements, parts) {
  for (const element of elements) {
    const walker = document.createTreeWalker(element, NodeFilter.SHOW_TEXT), nodes = []
    while (walker.nextNode()) nodes.push(walker.currentNode)
    for (const node of nodes) node.replaceWith(...parts(node.data))
  }
}

// in tables, numbers keep their thousands on one line, and long names break between their words
rewrite(document.querySelectorAll('article table:not([class]) :is(th, td)'), text =>
  text.replace(/(?<=\d) (?=\d{3}\b)/g, '\u00a0').split(/(?<=[a-z](?=[A-Z]))|(?<=\w-(?=v\d))|(?<=\w{4}\/)(?=\w{4})/)
    .flatMap((part, i) => i ? [document.createElement('wbr'), part] : [part]))

// in commands, lines break between flags and not after the dashes in them
rewrite(document.querySelectorAll('article pre code'), text =>
  text.split(/(--[a-z]+(?:-[a-z]+)*)/).map((part, i) => {
    if (!(i % 2)) return part
    const flag = document.createElement('span')
    flag.className = 'flag'
    flag.textContent = part
    return flag
  }))
