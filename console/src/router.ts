// Where the page is: the path below /console, and the query, in which lists keep their filters.
import { useEffect, useState } from 'preact/hooks'
import { tried } from './exact'
import { at } from './session'

const BASE = at('/console')
const heard = new Set<() => void>()

export const href = (path: string) => BASE + path
export const here = () => location.pathname.slice(BASE.length) || '/'

/** What the entry of the history that is shown keeps for whoever comes back to it: a number, of pages or pixels. */
export const noted = (name: string): number => history.state?.[name] ?? 0
export const note = (name: string, value: number) => history.replaceState({ ...history.state, [name]: value }, '')

const PLACE = 'tidings.place.' // of an entry that was left too soon after the last scroll to have noted it
let entry = 0 // the one that is shown, by a number of its own
let down = 0 // how far it is scrolled
let resting = 0 // until that is noted

/** How far down the entry that is shown now was when somebody went from it. */
function arrived(): number {
  entry = noted('entry') || Math.random()
  note('entry', entry)
  const place = sessionStorage.getItem(PLACE + entry)
  if (place) rest(Number(place))
  return noted('down')
}

/** Notes in the entry that is shown how far down it is. */
function rest(place = scrollY) {
  moves()
  sessionStorage.removeItem(PLACE + entry)
  note('down', place)
}

function moves() {
  clearTimeout(resting)
  resting = 0
}

/** Keeps it beside an entry that may be shown no more, whose notes are out of reach by then. */
function left() {
  if (resting) tried(() => sessionStorage.setItem(PLACE + entry, String(down)), null) // full: as it was noted last
  moves()
}

let awaited = arrived() // how far down somebody was who comes back, until the page is there or they move it
let settling = 0
let waiting = 0
const AWAITED_MS = 30_000

/** A page that never gets as long is left where it is: it would jump, minutes later, once something makes it longer. */
function awaits(down: number) {
  awaited = down
  clearTimeout(waiting)
  if (down)
    waiting = setTimeout(() => {
      awaited = 0
    }, AWAITED_MS)
}
awaits(awaited)

/** Goes as far down as the page was when somebody went from it, once it is as long, but for rows that have gone meanwhile, or grows no more. */
export function settle(isAll = false) {
  if (!awaited || (!isAll && document.documentElement.scrollHeight + 100 < awaited + innerHeight)) return
  scrollTo(0, awaited)
  settling ||= setTimeout(() => {
    awaited = 0
  }, 1000) // until then what comes above moves nothing
}
// Not everything that makes a page as long is a list.
new ResizeObserver(() => settle()).observe(document.documentElement)

addEventListener('scroll', () => {
  moves()
  if (awaited) return // it is not as long yet, or the browser's own doing
  down = scrollY
  resting = setTimeout(() => rest(), 100)
})
addEventListener('pagehide', left)
for (const act of ['wheel', 'touchmove', 'keydown', 'pointerdown'])
  addEventListener(
    act,
    () => {
      awaited = 0
    },
    { passive: true },
  )

export function go(path: string, replace = false) {
  rest()
  if (replace)
    history.replaceState(history.state, '', href(path)) // its lists keep their pages, and it stays where it is
  else {
    history.pushState(null, '', href(path))
    scrollTo(0, 0)
  }
  moved(false)
}

/** The page is another one now; where the one before was is noted. */
function moved(isBack: boolean) {
  clearTimeout(settling)
  settling = 0
  const place = arrived()
  awaits(isBack ? place : 0)
  for (const listener of heard) listener()
}

addEventListener('popstate', () => {
  left()
  moved(true)
})

// Links are plain links: only an ordinary click on one of ours stays in the page.
addEventListener('click', event => {
  const link = (event.target as Element).closest?.('a')
  if (
    !link ||
    event.defaultPrevented ||
    event.button ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey
  )
    return
  if (link.target || link.download || link.origin !== location.origin || !`${link.pathname}/`.startsWith(`${BASE}/`))
    return
  event.preventDefault()
  go(link.pathname.slice(BASE.length) + link.search)
})

export function useLocation(): { path: string; query: URLSearchParams } {
  const [, again] = useState(0)
  useEffect(() => {
    const listener = () => again(n => n + 1)
    heard.add(listener)
    return () => {
      heard.delete(listener)
    }
  }, [])
  return { path: here(), query: new URLSearchParams(location.search) }
}

/** What the address says by this name. */
export const useFilter = (name: string): string => useLocation().query.get(name) ?? ''

/** The path of this page with these filters set; "" removes one. */
export function narrowed(changes: Record<string, string>): string {
  const query = new URLSearchParams(location.search)
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value)
    else query.delete(name)
  }
  const text = query.toString()
  return here() + (text ? `?${text}` : '')
}

/** Takes these filters out of the address, or all that it has; null where there is none of them. */
export const cleared = (query: URLSearchParams, names = [...query.keys()]): (() => void) | null =>
  names.some(name => query.get(name)) ? () => narrow(Object.fromEntries(names.map(name => [name, '']))) : null

/** Sets filters in the address bar. What is narrowed so for the first time begins at its first page. */
export const narrow = (changes: Record<string, string>) => go(narrowed(changes), true)
