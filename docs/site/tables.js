// copies the header of each column to its cells, for screens that are too narrow for tables
for (const table of document.querySelectorAll('article table:not([class])')) {
  const headers = [...table.querySelectorAll('thead th')].map(cell => cell.textContent.trim())
  for (const row of table.querySelectorAll('tbody tr'))
    [...row.cells].forEach((cell, i) => { if (i && headers[i]) cell.dataset.header = headers[i] })
}
