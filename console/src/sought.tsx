// A list that the API cannot search: narrowed by a text in the address once all of it is here.
import type { ComponentChildren } from 'preact'
import type { Listed } from './data'
import { cleared, useLocation } from './router'
import { Filters, Search } from './ui'

const LONG = 10 // rows that are looked through at a glance

/** The rows whose `text` has each word somewhere. */
export function sought<T>(rows: readonly T[], text: (row: T) => string, words: string): T[] {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean)
  return rows.filter(row => {
    const has = text(row).toLowerCase()
    return wanted.every(word => has.includes(word))
  })
}

export function Sought<T>({
  of,
  text,
  children,
}: {
  of: Listed<T>
  text: (row: T) => string
  children: (found: Listed<T>) => ComponentChildren
}) {
  const { query } = useLocation()
  const words = query.get('q') ?? ''
  const count = of.rows?.length ?? 0
  const isLong = count > LONG || (count > 0 && words !== '')
  return (
    <>
      {isLong &&
        (of.more ? (
          <p class="hint">
            These are the newest {count.toLocaleString()}
            {words && ', not searched yet'}. To search them, show more until all are here.
          </p>
        ) : (
          <Filters>
            <Search label="Search" name="q" placeholder={`in all ${count.toLocaleString()}`} />
          </Filters>
        ))}
      {children(
        of.rows && isLong && !of.more
          ? { ...of, rows: sought(of.rows, text, words), clear: cleared(query, ['q']) }
          : of,
      )}
    </>
  )
}
