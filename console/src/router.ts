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

/** Goes as far down as the page was when somebody went from it, once it is as long, but for rows that have gone meanwhile. */
export function settle() {
  const down = noted('down')
  if (!down || document.documentElement.scrollHeight + 100 < down + innerHeight) return
  note('down', 0)
  scrollTo(0, down)
}

export function go(path: string, replace = false) {
  if (replace) history.replaceState(null, '', href(path))
  else {
    note('down', scrollY)
    history.pushState(null, '', href(path))
    scrollTo(0, 0)
  }
  for (const listener of heard) listener()
}

addEventListener('popstate', () => { for (const listener of heard) listener() })

// Links are plain links: only an ordinary click on one of ours stays in the page.
addEventListener('click', event => {
  const link = (event.target as Element).closest?.('a')
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
  if (link.target || link.download || link.origin !== location.origin || !`${link.pathname}/`.startsWith(`${BASE}/`)) return
  event.preventDefault()
  go(link.pathname.slice(BASE.length) + link.search)
})

export function useLocation(): { path: string; query: URLSearchParams } {
  const [, again] = useState(0)
  useEffect(() => {
    const listener = () => again(n => n + 1)
    heard.add(listener)
    return () => { heard.delete(listener) }
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

/** Sets filters in the address bar. The page of a list begins anew. */
export const narrow = (changes: Record<string, string>) => go(narrowed(changes), true)
