// Hooks that read from the API: one resource, a list page by page, an act, and what was typed.
import { createContext } from 'preact'
import { useCallback, useContext, useEffect, useRef, useState } from 'preact/hooks'
import { same } from './exact'
import { note, noted, settle } from './router'
import { draftKey, Refusal } from './session'

export const asRefusal = (error: unknown) =>
  error instanceof Refusal
    ? error
    : new Refusal(0, 'unexpected', error instanceof Error ? error.message : String(error))

export interface Loaded<T> {
  value: T | null
  problem: Refusal | null
  busy: boolean
  reload: () => Promise<void>
  set: (value: T) => void
}

const UNREAD = { value: null, problem: null, busy: true }

/**
 * Reads when `keys` change, and every `every(value)` milliseconds while the page is looked at. With `rest`, what was read before stays until
 * the keys have not changed for so many milliseconds and were read again.
 */
export function useLoaded<T>(
  read: () => Promise<T>,
  keys: readonly unknown[],
  every?: (value: T) => number,
  rest?: number,
): Loaded<T> {
  const [state, setState] = useState<{ value: T | null; problem: Refusal | null; busy: boolean }>(UNREAD)
  const turn = useRef(0)
  const hasBegun = useRef(false)
  const isReading = useRef(false) // then no look begins, or answers slower than the looks would never be shown
  /** One look among many leaves the page alone unless something has changed. */
  const begin = useCallback(async (isLook: boolean) => {
    const mine = ++turn.current
    isReading.current = true
    if (!isLook) setState(old => ({ ...old, busy: true }))
    try {
      const value = await read()
      if (mine === turn.current)
        setState(old =>
          isLook && typeof value === 'object' && !old.problem && !old.busy && same(old.value, value)
            ? old
            : { value, problem: null, busy: false },
        )
    } catch (error) {
      if (mine === turn.current) setState(old => ({ ...old, problem: asRefusal(error), busy: false }))
    }
    if (mine === turn.current) isReading.current = false
  }, keys)
  useEffect(() => {
    const isLater = rest !== undefined && hasBegun.current
    hasBegun.current = true
    const timer = isLater ? setTimeout(() => void begin(false), rest) : 0
    if (!isLater) {
      setState(UNREAD)
      void begin(false)
    }
    return () => {
      clearTimeout(timer)
      turn.current++
    }
  }, [begin])
  const pause = state.value !== null && every ? every(state.value) : 0
  useEffect(() => {
    if (!pause) return
    const timer = setInterval(() => {
      if (!document.hidden && !isReading.current) void begin(true)
    }, pause)
    return () => clearInterval(timer)
  }, [pause, begin])
  return {
    ...state,
    reload: () => begin(false),
    set: value => {
      turn.current++ // what is being read is older
      isReading.current = false
      setState({ value, problem: null, busy: false })
    },
  }
}

/** What reads each thing once, for whoever asks for it by its name; what was refused is read again by the next. */
export function once() {
  const known = new Map<string, Promise<unknown>>()
  return <T>(name: string, read: () => Promise<T>): Promise<T> => {
    const found = known.get(name) as Promise<T> | undefined
    if (found) return found
    const reading = read()
    known.set(name, reading)
    reading.catch(() => known.delete(name))
    return reading
  }
}

/** Below it, parts of a page that ask for the same share what one of them read. */
export const Once = createContext<ReturnType<typeof once>>((_, read) => read())
export function useOnce<T>(name: string, read: () => Promise<T>): Loaded<T> {
  const shared = useContext(Once)
  return useLoaded(() => shared(name, read), [name])
}

/** What a form changes that is stored, under its entity tag; `again` reads it anew. */
export interface Edited<T> {
  stored: T
  tag: string
  again: () => Promise<T>
}

/** What is edited, with its entity tag; `again` reads it anew, in the place of what is shown. `every`: milliseconds between looks at it. */
export function useStored<T>(
  read: () => Promise<{ value: T; tag: string }>,
  keys: readonly unknown[],
  every = 0,
): Loaded<{ value: T; tag: string }> & { again: () => Promise<T> } {
  const stored = useLoaded(read, keys, () => every)
  return {
    ...stored,
    again: async () => {
      const now = await read()
      stored.set(now)
      return now.value
    },
  }
}

export const REST_MS = 400 // without a key, until what is made of a text is made anew

/** What is made of something that is typed, shortly after the last key. */
export const useTyped = <T>(read: () => Promise<T>, keys: readonly unknown[]): Loaded<T> =>
  useLoaded(read, keys, undefined, REST_MS)

export interface Page<T> {
  data: T[]
  nextCursor: string | null
}
export interface Listed<T> {
  rows: T[] | null
  problem: Refusal | null
  busy: boolean
  more: (() => Promise<void>) | null
  reload: () => Promise<void>
  isCut?: boolean // whoever came back to it had seen more of it
  clear?: (() => void) | null // where the address narrows it: shows all of it
}

/** So many pages as one, and one at least. */
export async function joined<T>(
  read: (cursor?: string) => Promise<Page<T>>,
  count: number,
  from?: string,
): Promise<Page<T>> {
  const page = await read(from)
  if (count < 2 || !page.nextCursor) return page
  const rest = await joined(read, count - 1, page.nextCursor)
  return { data: [...page.data, ...rest.data], nextCursor: rest.nextCursor }
}

const MOST_PAGES = 10 // that whoever comes back waits for, one after the other

/** A list, whose next pages are appended, and shown at once to whoever comes back to it. `every`: milliseconds between looks at its first page.
 * Where a screen has several, their `keys` begin with a name; one without keys begins at its first page. */
export function useListed<T>(
  read: (cursor?: string) => Promise<Page<T>>,
  keys: readonly unknown[],
  every = 0,
): Listed<T> {
  const [appended, setAppended] = useState<{ to: Page<T>; rows: T[]; next: string | null } | null>(null)
  const [busy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Refusal | null>(null)
  const place = `pages ${keys.join()}`
  const pages = useRef({ of: '', count: 1 }) // that are shown, of this place
  const again = () =>
    joined(
      read,
      (pages.current.of === place
        ? pages.current
        : (pages.current = { of: place, count: Math.min(noted(place) || 1, MOST_PAGES) })
      ).count,
    )
  const first = useLoaded(again, keys, () => (pages.current.count > 1 || busy ? 0 : every))
  useEffect(() => {
    if (first.value) settle(noted(place) > MOST_PAGES)
  }, [!first.value])
  const list = useRef(0) // which of them the pages that are under way belong to
  const begin = () => {
    list.current++
    setProblem(null)
    setBusy(false)
  }
  useEffect(() => {
    begin()
    return () => {
      list.current++
    }
  }, keys) // what comes late is of another entry of the history
  const later = appended?.to === first.value ? appended : null // gone as soon as what is before it was read anew
  const next = later ? later.next : (first.value?.nextCursor ?? null)
  const more = async () => {
    const before = first.value
    if (!before || !next || busy) return
    setBusy(true)
    const asked = list.current
    try {
      const page = await read(next)
      if (asked !== list.current) return
      first.set(before) // it goes on where that one ended, and not a page that was read meanwhile
      setAppended({ to: before, rows: [...(later?.rows ?? []), ...page.data], next: page.nextCursor })
      if (keys.length) note(place, Math.max(noted(place), ++pages.current.count))
      setProblem(null)
    } catch (error) {
      if (asked !== list.current) return
      setProblem(asRefusal(error))
    }
    setBusy(false)
  }
  return {
    rows: first.value && [...first.value.data, ...(later?.rows ?? [])],
    problem: problem ?? first.problem,
    busy: busy || first.busy,
    more: next ? more : null,
    isCut: pages.current.of === place && noted(place) > pages.current.count,
    reload: async () => {
      begin()
      await first.reload()
    },
  }
}

export interface Act {
  run: (work: () => Promise<unknown>) => Promise<boolean>
  problem: Refusal | null
  busy: boolean
  clear: () => void
}

/** An act of the user: one at a time, and its refusal is shown. True when it succeeded. */
export function useAct(): Act {
  const [problem, setProblem] = useState<Refusal | null>(null)
  const [busy, setBusy] = useState(false)
  const running = useRef(false)
  const run = async (work: () => Promise<unknown>) => {
    if (running.current) return false
    running.current = true
    setBusy(true)
    setProblem(null)
    try {
      await work()
      return true
    } catch (error) {
      setProblem(asRefusal(error))
      return false
    } finally {
      running.current = false
      setBusy(false)
    }
  }
  return { run, problem, busy, clear: () => setProblem(null) }
}

/** The members in which it differs from what it was. */
const changed = <T extends object>(now: T, before: T) =>
  Object.fromEntries(Object.entries(now).filter(([name, value]) => !same(value, before[name as keyof T]))) as Partial<T>

/** What was typed into a form, and under which revision of what is stored: "" where none is checked. `isGiven`: by nobody yet. */
interface Begun<T> {
  typed: Partial<T>
  base: T
  tag: string
  isGiven?: boolean
}

function keep(key: string, begun: { typed: object; isGiven?: boolean }) {
  try {
    if (same(begun.typed, {})) sessionStorage.removeItem(key)
    else sessionStorage.setItem(key, JSON.stringify(begun))
  } catch {
    /* full: typed text stays in the page */
  }
}

/** Keeps something as typed into the form of this name; `isGiven`: nobody has typed it, or misses it. */
export const handOver = (name: string, typed: object, isGiven = false): void =>
  keep(draftKey(name), isGiven ? { typed, isGiven } : { typed })

/** The same over what is stored now, which is shown where nothing was typed; unless somebody else changed what was: then as it was begun. */
function over<T extends object>(begun: Begun<T>, stored: T, tag: string): Begun<T> {
  const { typed, base } = begun
  const isTheirs = (name: string) => name in typed && !same(stored[name as keyof T], typed[name as keyof T])
  if (begun.tag && (begun.tag === tag || Object.keys(changed(stored, base)).some(isTheirs))) return begun
  return { ...begun, typed: changed({ ...stored, ...typed }, stored), base: stored, tag }
}

type Forget<T> = (saved?: T, elsewhere?: string) => boolean

/** A draft: the tag that its save has to match, and whether anything is typed that is not stored. `clash`: somebody else changed the same since. */
export interface Held {
  tag: string
  isTyped: boolean
  clash: Record<'base' | 'mine' | 'theirs', object> | null
  goOn: () => void
  forget: () => void
}

/**
 * What is typed into a form: kept for this tab and workspace, so that a reload loses nothing. Not for secrets.
 *
 * The third puts what is stored in the place of what its render showed, which is what a save has sent. What was typed since stays, in this form
 * or under the name of the one that goes on with it; true when there is nothing of that kind.
 */
export function useDraft<T extends object>(
  name: string,
  stored: T,
  tag = '',
): [T, (changes: Partial<T>) => void, Forget<T>, Held] {
  const key = draftKey(name) // also of the sign-in form, whose draft is forgotten once there is a workspace
  const [begun, setBegun] = useState<Begun<T>>(() => ({
    typed: {},
    base: stored,
    tag,
    ...JSON.parse(sessionStorage.getItem(key) ?? '{}'),
  }))
  const latest = useRef(begun)
  const now = over(begun, stored, tag)
  const draft = { ...now.base, ...now.typed }
  const put = (next: Begun<T>) => {
    latest.current = next
    setBegun(next)
    keep(key, next)
  }
  useEffect(() => keep(key, over(latest.current, stored, tag)), [tag, JSON.stringify(stored)])
  const change = (changes: Partial<T>) => {
    const { typed, base, tag: at } = over(latest.current, stored, tag)
    put({ typed: changed({ ...base, ...typed, ...changes }, base), base, tag: at })
  }
  const forget: Forget<T> = (saved = stored, elsewhere) => {
    const at = over(latest.current, stored, tag)
    const since = changed({ ...at.base, ...at.typed }, draft)
    if (elsewhere) handOver(elsewhere, since)
    const base = tag ? saved : stored
    put({ typed: changed({ ...saved, ...(elsewhere ? {} : since) }, base), base, tag })
    return same(since, {})
  }
  const goOn = () => put({ typed: now.typed, base: stored, tag })
  return [
    draft,
    change,
    forget,
    {
      tag: now.tag,
      isTyped: !same(now.typed, {}) && !same(draft, stored), // also where the tab can keep no more
      clash: now.tag === tag ? null : { base: now.base, mine: { ...stored, ...now.typed }, theirs: stored },
      goOn,
      forget: () => {
        forget()
      },
    },
  ]
}

/** What a field of a form gets: a member of what is typed, what changes it, and its pointer. */
export const fields =
  <T extends object>(draft: T, change: (changes: Partial<T>) => void) =>
  <Name extends keyof T & string>(name: Name, pointer = `/${name}`) => ({
    value: draft[name],
    set: (value: T[Name]) => change({ [name]: value } as unknown as Partial<T>),
    pointer,
  })
