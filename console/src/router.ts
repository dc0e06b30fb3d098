// Where the page is: the path below /console, and the query, in which lists keep their filters.
import { useEffect, useState } from 'preact/hooks'
import { at } from './session'

const BASE = at('/console')
const heard = new Set<() => void>()

export const href = (path: string) => BASE + path
export const here = () => location.pathname.slice(BASE.length) || '/'

/** What the entry of the history that is shown keeps for whoever comes back to it: a number, of pages or pixels. */
export const noted = (name: string): number => history.state?.[name] ?? 0
export const note = (name: string, value: number) => history.replaceState({ ...history.state, [name]: value }, '')

let awaited = noted('down') // how far down somebody was who comes back, until the page is there or they move it
let resting = 0
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
  clearTimeout(resting)
  if (awaited) return // it is not as long yet, or the browser's own doing
  resting = setTimeout(() => note('down', scrollY), 100)
})
for (const act of ['wheel', 'touchmove', 'keydown', 'pointerdown'])
  addEventListener(
    act,
    () => {
      awaited = 0
    },
    { passive: true },
  )

export function go(path: string, replace = false) {
  note('down', scrollY)
  if (replace)
    history.replaceState(history.state, '', href(path)) // its lists keep their pages, and it stays where it is
  else {
    history.pushState(null, '', href(path))
    scrollTo(0, 0)
  }
  moved(0)
}

/** The page is another one now; where the one before was is noted. */
function moved(down: number) {
  clearTimeout(resting)
  clearTimeout(settling)
  settling = 0
  awaits(down)
  for (const listener of heard) listener()
}

addEventListener('popstate', () => moved(noted('down')))

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

/** Sets filters in the address bar. What is narrowed so for the first time begins at its first page. */
export const narrow = (changes: Record<string, string>) => go(narrowed(changes), true)
