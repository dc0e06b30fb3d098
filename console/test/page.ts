// What modules of src/ look for in their page when they are loaded. Import it before them.
const kept = () => {
  const values = new Map<string, string>()
  return {
    getItem: (key: string) => values.get(key) ?? null,
    setItem: (key: string, value: string) => void values.set(key, value),
    removeItem: (key: string) => void values.delete(key),
  }
}

const listeners = new Map<string, ((event: object) => void)[]>()
/** Something happens in the window. */
export const fire = (name: string, event: object = {}) => listeners.get(name)?.forEach(listener => listener(event))

const page = {
  document: { querySelector: () => null, documentElement: { style: {} } },
  location: new URL('https://tidings.example/console/'),
  navigator: { locks: { request: (_: string, work: () => unknown) => work() } },
  sessionStorage: kept(),
  localStorage: kept(),
  addEventListener: (name: string, listener: (event: object) => void) =>
    void listeners.set(name, [...(listeners.get(name) ?? []), listener]),
  history: {
    state: null as object | null,
    replaceState(state: object | null, _: string, url?: string) {
      this.state = state
      if (url) Object.assign(globalThis, { location: new URL(url, location.href) })
    },
    pushState(state: object | null, _: string, url?: string) {
      this.replaceState(state, _, url)
    },
  },
  ResizeObserver: class {
    observe() {}
  },
}
for (const [name, value] of Object.entries(page))
  Object.defineProperty(globalThis, name, { value, configurable: true, writable: true })

/** The service answers by these, one after the other; what it was asked. */
export function answering(...answers: (() => Response)[]): Request[] {
  const asked: Request[] = []
  globalThis.fetch = async request => {
    asked.push(request as Request)
    return answers.shift()!()
  }
  return asked
}
