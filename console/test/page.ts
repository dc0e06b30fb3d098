// What modules of src/ look for in their page when they are loaded. Import it before them.
const kept = () => {
  const values = new Map<string, string>()
  return {
    getItem: (key: string) => values.get(key) ?? null,
    setItem: (key: string, value: string) => void values.set(key, value),
    removeItem: (key: string) => void values.delete(key),
  }
}

const page = {
  document: { querySelector: () => null },
  location: new URL('https://tidings.example/console/'),
  navigator: { locks: { request: (_: string, work: () => unknown) => work() } },
  sessionStorage: kept(),
  localStorage: kept(),
  addEventListener: () => {},
  history: { state: null },
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
