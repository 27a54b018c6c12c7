// Browsers give no worker to a page that was opened as a file: there the search's worker runs in a hidden frame.
// The name keeps the theme from asking another host for the like.
if (location.protocol === 'file:') {
  const message = (data) => new MessageEvent('message', { data: structuredClone(data) })
  window.Worker = class {
    constructor(url) {
      const frame = document.createElement('iframe')
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      // an answer comes after what asked for it has ended, as from a worker
      this.inside.postMessage = (data) => setTimeout(() => this.onmessage?.(message(data)))
      const script = this.inside.document.createElement('script')
      this.loaded = new Promise((resolve) => (script.onload = resolve))
      script.src = url
      this.inside.document.body.append(script)
    }
    postMessage(data) {
      this.loaded.then(() => this.inside.onmessage(message(data)))
    }
    terminate() {}
  }
}
