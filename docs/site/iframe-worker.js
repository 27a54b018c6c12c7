// Browsers do not start workers for a page that was opened as a file. The search's worker then runs in a hidden frame.
// Because this file has the name of the theme's polyfill, the theme does not load it from another host.
if (location.protocol === 'file:') {
  const message = (data) => new MessageEvent('message', { data: structuredClone(data) })
  window.Worker = class {
    constructor(url) {
      const frame = document.createElement('iframe')
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      // deliver the answer after the caller has returned, as a worker does
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
