// A list that the API cannot search: narrowed by a text in the address once all of it is here.
import type { ComponentChildren } from 'preact'
import type { Listed } from './data'
import { narrow, useLocation } from './router'
import { Filters, Search } from './ui'

const LONG = 10 // rows that are looked through at a glance
export const MOST = 200 // rows of one answer

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
  const words = useLocation().query.get('q') ?? ''
  const count = of.rows?.length ?? 0,
    all = `all ${count.toLocaleString()}`
  const isLong = count > LONG || (count > 0 && words !== '')
  const rows = of.rows && !of.more ? sought(of.rows, text, words) : of.rows
  return (
    <>
      {isLong &&
        (of.more ? (
          <p class="hint">
            These are the newest {count.toLocaleString()}
            {words && ', not searched yet'}. Show all to search them.
          </p>
        ) : (
          <Filters>
            <Search label="Search" name="q" value={words} placeholder={`in ${all}`} />
          </Filters>
        ))}
      {count > 0 && !rows?.length ? (
        <p class="empty" role="status">
          No match in {all}.{' '}
          <button
            type="button"
            class="plain"
            onClick={() => {
              narrow({ q: '' })
              document.querySelector<HTMLElement>('[type=search]')?.focus()
            }}
          >
            Show all
          </button>
        </p>
      ) : (
        children({ ...of, rows })
      )}
    </>
  )
}
