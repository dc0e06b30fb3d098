// Screens that are a list, which the address narrows: what the API is asked for, and what stands around it.
import type { ComponentChildren } from 'preact'
import { useRef } from 'preact/hooks'
import { got, type Answered } from './api'
import { useListed, type Listed, type Page } from './data'
import { days } from './days'
import { useCan } from './me'
import { meant } from './names'
import { cleared, here, useLocation } from './router'
import type { paths } from './schema'
import { Refusal } from './session'
import { Filters, Link, Screen, Table, type Tabled } from './ui'

/** What a list of the API can be asked for. */
type Asked<Path extends keyof paths> = paths[Path] extends { get: { parameters: { query?: infer Query } } }
  ? NonNullable<Query>
  : never

/** Whom a filter means; why it means nobody stands in the place of the rows. */
const whom = (text: string) =>
  meant(text).catch((error: Refusal) => {
    const { status, code, message, errors } = error
    throw status === 422 ? new Refusal(status, code, errors[0]?.message ?? message) : error
  })

/** The list at this path of the API, narrowed by days and by these filters of the address, of whose values the API judges. */
export function useNarrowed<Path extends keyof paths, T>(
  path: Path,
  read: (asked: Asked<Path>) => Promise<Answered<Page<T>>>,
  names: readonly (keyof Asked<Path> & string)[] = [],
  every = 0,
): Listed<T> {
  const { query } = useLocation()
  const who = useRef({ text: '', id: null as string | null }) // asked for once, and not with every look
  const filters = names.map(name => [name, query.get(name) || undefined])
  const list = useListed(
    async cursor => {
      const asked = { ...Object.fromEntries(filters), ...days(query), cursor, limit: 50 }
      const text = asked.contactId
      if (text) {
        if (who.current.text !== text) who.current = { text, id: await whom(text) }
        asked.contactId = who.current.id
      }
      return got(read(asked as Asked<Path>))
    },
    [path, query.toString()],
    every,
  )
  return { ...list, clear: cleared(query) }
}

/** `one`: what a row is called, which those who may `needs` make on a page of its own. */
export function ListScreen<T extends object>({
  title,
  what = title.toLowerCase(),
  lead,
  one,
  needs = '',
  actions,
  filters,
  more,
  opened,
  empty,
  children,
  ...list
}: Tabled<T> & {
  title: string
  what?: string
  lead: string
  one?: string
  needs?: string
  actions?: ComponentChildren
  filters?: ComponentChildren
  more?: ComponentChildren
  opened?: () => void
  children?: ComponentChildren
}) {
  const may = useCan()(needs)
  const make = `${here()}/new`
  return (
    <Screen
      title={title}
      lead={lead}
      actions={
        <>
          {may && (
            <Link class="button primary" to={make}>
              New {one}
            </Link>
          )}
          {actions}
        </>
      }
    >
      <Filters more={more} opened={opened}>
        {filters}
      </Filters>
      <Table
        what={what}
        empty={
          empty ?? (may ? <Link to={make}>Create one</Link> : one && 'A member who can edit them creates the first.')
        }
        {...list}
      />
      {children}
    </Screen>
  )
}
