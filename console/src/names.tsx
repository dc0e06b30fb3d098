// Names for ids, and what a form offers to choose from.
import { useMemo, useRef } from 'preact/hooks'
import { api, byId, got, type Schemas } from './api'
import { asRefusal, useListed, useLoaded, useOnce, type Listed } from './data'
import { Refusal } from './session'
import { Field, Link, Section, Shown, type Column } from './ui'

export type Kind = 'workflows' | 'automations'
export type FlowName = {
  id: string
  kind: Kind
  name: string
  state: string
  version: number
  triggerSource: string
  createdAt: string
  updatedAt: string
}
type Named = { id: string; name: string }

/** One of a list that is shown whole, or nearly so. */
export const page = <More extends object>(cursor?: string, more?: More) => ({
  params: { query: { cursor, limit: 200, ...more } },
})

/** Two lists in one, newest first, as far back as both are known. */
export function merged<T extends { createdAt: string }>(one: Listed<T>, other: Listed<T>): Listed<T> {
  const both = [one, other]
  const known = both
    .map(list => (list.more ? (list.rows?.at(-1)?.createdAt ?? '') : ''))
    .sort()
    .at(-1)!
  return {
    rows:
      one.rows &&
      other.rows &&
      [...one.rows, ...other.rows]
        .filter(each => each.createdAt >= known)
        .sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1)),
    problem: one.problem ?? other.problem,
    busy: one.busy || other.busy,
    more:
      one.more || other.more
        ? async () => {
            await Promise.all(both.map(list => list.more?.()))
          }
        : null,
    isCut: both.some(list => list.isCut && list.more),
    clear: one.clear ?? other.clear ?? null,
    reload: async () => {
      await Promise.all(both.map(list => list.reload()))
    },
  }
}

export interface FlowFilters {
  state?: Schemas['WorkflowSummary']['state']
  name?: string
  createdAfter?: string
  createdBefore?: string
  updatedAfter?: string
}

/** The flows of the workspace, of both shapes. */
export function useFlows(filters: FlowFilters = {}): Listed<FlowName> {
  const of = (kind: Kind) =>
    useListed<FlowName>(
      async cursor => {
        const { data, nextCursor } = await got(api.GET(`/${kind}`, page(cursor, filters)))
        return { data: data.map(each => ({ ...each, kind })), nextCursor }
      },
      [kind, JSON.stringify(filters)],
    )
  return merged(of('workflows'), of('automations'))
}

/** Of which kind the flow with this id is. */
export const kindById = (id: string): Kind => (id.startsWith('wfl') ? 'workflows' : 'automations')

async function flow(id: string): Promise<FlowName> {
  const kind = kindById(id)
  const { trigger, ...found } = await got(api.GET(`/${kind}/{id}`, byId(id)))
  return { ...found, kind, triggerSource: trigger.source }
}

const template = (id: string) => got(api.GET('/templates/{id}', byId(id)))
const segment = (id: string) => got(api.GET('/segments/{id}', byId(id)))
const broadcast = (id: string) => got(api.GET('/broadcasts/{id}', byId(id)))

// --- what a form offers to choose from ---

/** With the chosen one, however far down the list it is. */
function useChosen<T extends Named>(list: Listed<T>, chosen: string, read: (id: string) => Promise<T>): Listed<T> {
  const isFar = chosen !== '' && list.more !== null && !list.rows?.some(each => each.id === chosen)
  const far = useLoaded(async () => (isFar ? read(chosen) : null), [isFar && chosen])
  return isFar && list.rows && far.value?.id === chosen ? { ...list, rows: [...list.rows, far.value] } : list
}

export const useFlowChoice = (chosen = '') => useChosen(useFlows(), chosen, flow)
export const useTemplates = (chosen = '') =>
  useChosen<Schemas['TemplateSummary']>(
    useListed(cursor => got(api.GET('/templates', page(cursor))), []),
    chosen,
    template,
  )
export const useSegments = (chosen = '') =>
  useChosen(
    useListed(cursor => got(api.GET('/segments', page(cursor))), []),
    chosen,
    segment,
  )
export const useTopics = (chosen = '') =>
  useChosen(
    useListed(cursor => got(api.GET('/topics', page(cursor))), []),
    chosen,
    id => got(api.GET('/topics/{id}', byId(id))),
  )
/** Who gets marketing about this topic, or about none; the default one is about whatever has none. */
export const getting = ({ rows }: Listed<Schemas['TopicShape']>, id: string | null) =>
  rows &&
  (rows.some(each => each.id === id && !each.isDefault)
    ? 'Only contacts who opted in get this.'
    : 'Everyone who has not unsubscribed gets this.')
export const useBroadcasts = (chosen = '') =>
  useChosen<Schemas['BroadcastSummary']>(
    useListed(cursor => got(api.GET('/broadcasts', page(cursor))), []),
    chosen,
    broadcast,
  )

export const TAGS = 'tags',
  FIELDS = 'fields',
  EVENTS = 'events'

/** Proposes these to a field whose `list` is this one. */
export const List = ({ id, of }: { id: string; of: readonly string[] }) => (
  <datalist id={id}>
    {of.map(each => (
      <option key={each} value={each} />
    ))}
  </datalist>
)

export function Tags() {
  const found = useOnce('tags', () => got(api.GET('/tags', page())))
  return <List id={TAGS} of={found.value?.data.map(each => each.name) ?? []} />
}

export type Used = Schemas['NamesInUse']
const NONE: Used = { fields: [], events: [] }
const FRESH_MS = 60_000
let known = { until: 0, read: Promise.resolve(NONE) }
/** What contacts have and did, by name: dear to find, so a tab asks once a minute. */
export function readUsed(): Promise<Used> {
  if (Date.now() > known.until) {
    known = { until: Date.now() + FRESH_MS, read: got(api.GET('/names')) }
    known.read.catch(() => {
      known.until = 0
    })
  }
  return known.read
}
/** The same; nothing until it is wanted and read. */
export const useUsed = (isWanted = true): Used =>
  useLoaded(async () => (isWanted ? readUsed() : NONE), [isWanted]).value ?? NONE

export const Names = ({ of }: { of: Used }) => (
  <>
    <Tags />
    <List id={FIELDS} of={of.fields.map(each => each.name)} />
    <List id={EVENTS} of={of.events} />
  </>
)

/** As the options of a choice. */
export const options = (of: Listed<Named>) => (of.rows ?? []).map(each => [each.id, each.name] as const)

// --- names ---

const far = new Map<string, string>()
const nameless = (id: string) => (error: unknown) => {
  if ([403, 404].includes(asRefusal(error).status)) return id // no repetition mends it
  throw error
}

/** Of these ids those that are not known yet, each once, and so many at most. */
export const unnamed = (ids: readonly (string | null)[], isKnown: (id: string) => boolean, most: number) =>
  [...new Set(ids)]
    .filter(id => id !== null)
    .filter(id => id && !isKnown(id))
    .slice(0, most)

const refused = new Map<string, number>() // how often

/** The first six of these; what was refused comes after the others, or it would keep its place for ever. */
export const inTurn = (ids: readonly string[], times: ReadonlyMap<string, number>) =>
  ids.toSorted((one, other) => (times.get(one) ?? 0) - (times.get(other) ?? 0)).slice(0, 6)

/** How long these are left alone, of which each was refused at least so often. */
export const rest = (times: readonly number[]) =>
  times.length ? Math.min(5000 * 2 ** (Math.min(...times) - 1), 300_000) : 0

/** By id: those of the list, and beyond what it shows each by itself, six at once. What is gone is called by its id. */
function useNames<T extends Named>(
  list: Listed<T>,
  ids: readonly string[],
  read: (id: string) => Promise<T>,
): Map<string, string> {
  const near = new Map(options(list))
  const beyond = unnamed(list.more ? ids : [], id => near.has(id) || far.has(id), Infinity)
  useLoaded(
    async () => {
      const asked = inTurn(beyond, refused)
      const known = await Promise.allSettled(
        asked.map(async id => far.set(id, await read(id).then(found => found.name, nameless(id)))),
      )
      const failed = asked.filter((_, index) => known[index]!.status === 'rejected')
      for (const id of failed) refused.set(id, (refused.get(id) ?? 0) + 1)
      return rest(failed.map(id => refused.get(id)!))
    },
    [beyond.join()],
    pause => pause,
  )
  return useMemo(() => new Map([...far, ...near]), [[...near].join(), far.size])
}

type Of = { workflowId?: string | null; automationId?: string | null }
const flowOf = (run: Of) => run.workflowId ?? run.automationId ?? ''

export const useFlowNames = (all: Listed<FlowName>, runs: readonly Of[]) => useNames(all, runs.map(flowOf), flow)
export const useTemplateNames = (ids: readonly string[]) => useNames(useTemplates(), ids, template)

export const useBroadcastNames = (ids: readonly string[]) => useNames(useBroadcasts(), ids, broadcast)
/** The list is read only where one of these is to be named. */
export function useSegmentNames(ids: readonly string[]) {
  const isAsked = ids.length > 0
  const list = useListed<Named>(
    async cursor => (isAsked ? got(api.GET('/segments', page(cursor))) : { data: [], nextCursor: null }),
    ['names', isAsked],
  )
  return useNames(list, ids, segment)
}

export const FlowLink = ({ run, names }: { run: Of; names: Map<string, string> }) => (
  <Link to={`/flows/${run.workflowId ? 'workflows' : 'automations'}/${flowOf(run)}`}>
    {names.get(flowOf(run)) ?? flowOf(run)}
  </Link>
)

/** What keeps something from being deleted; `nothing` is said where nothing does. */
export function UsedBy({
  id,
  read,
  nothing,
}: {
  id: string
  read: () => Promise<{ usedBy: string[] }>
  nothing: string
}) {
  const used = useLoaded(read, [id])
  const begin = (prefix: string) => (used.value?.usedBy ?? []).filter(each => each.startsWith(prefix))
  const runs = [
    ...begin('wfl_').map(each => ({ workflowId: each })),
    ...begin('aut_').map(each => ({ automationId: each })),
  ]
  const flows = useFlowNames(useFlows(), runs),
    broadcasts = useBroadcastNames(begin('bro_')),
    segments = useSegmentNames(begin('seg_'))
  return (
    <Section title="Used by">
      <Shown of={used}>
        {({ usedBy }) =>
          usedBy.length ? (
            <ul class="plain used">
              {runs.map(run => (
                <li key={flowOf(run)}>
                  <FlowLink run={run} names={flows} />
                </li>
              ))}
              {[...begin('bro_'), ...begin('seg_')].map(each => (
                <li key={each}>
                  <Link to={`/${each.startsWith('bro') ? 'broadcasts' : 'segments'}/${each}`}>
                    {broadcasts.get(each) ?? segments.get(each) ?? each}
                  </Link>
                </li>
              ))}
            </ul>
          ) : (
            <p class="empty">{nothing}</p>
          )
        }
      </Shown>
    </Section>
  )
}

/** A text as it can be read: without what cannot be seen. */
export const plain = (text: string) =>
  text
    .normalize('NFC')
    .replace(/[\p{DI}\p{Cf}]/gu, '')
    .trim()
    .replace(/\s+/g, ' ')

export const called = (contact: Pick<Schemas['Contact'], 'id' | 'firstName' | 'lastName' | 'email' | 'phone'>) =>
  [contact.firstName, contact.lastName].filter(name => name && plain(name)).join(' ') ||
  contact.email ||
  contact.phone ||
  contact.id

/** How lists show contacts. */
export const PERSON: readonly Column<Schemas['Contact']>[] = [
  ['Name', each => <Link to={`/contacts/${each.id}`}>{called(each)}</Link>],
  ['Email', each => each.email ?? '–'],
  ['Phone', each => each.phone ?? '–'],
]

/** The contact that somebody means: by ID, by an address, or by the beginning of one or of a name; null for nobody. */
export async function meant(text: string): Promise<string | null> {
  const wanted = text.trim()
  if (!wanted || wanted.startsWith('con_')) return wanted || null
  const { data, nextCursor } = await got(api.GET('/contacts', { params: { query: { q: wanted, limit: 200 } } }))
  const whole = data.find(each =>
    [each.email, each.phone].some(address => address?.toLowerCase() === wanted.toLowerCase()),
  )
  const only = whole ?? (data.length === 1 && nextCursor === null ? data[0] : undefined)
  if (only) return only.id
  const message =
    data.length || nextCursor
      ? 'Several contacts start with that: type more, or the ID.'
      : 'No contact starts with that.'
  throw new Refusal(422, 'invalid', message, [{ pointer: '/contactId', message }])
}

/** Asks for a contact, as `meant` understands it. */
export const Whom = ({ hint, ...rest }: Pick<Parameters<typeof Field>[0], 'value' | 'set' | 'required' | 'hint'>) => (
  <Field {...rest} label="Contact" pointer="/contactId" hint={<>Email address, name or ID. {hint}</>} />
)

const contacts = new Map<string, string>()

/** All by one question, and of each page that shows them anew: somebody may be called otherwise by now. */
export function useContactNames(ids: readonly (string | null)[]): Map<string, string> {
  const asked = useRef(new Set<string>())
  const wanted = unnamed(ids, id => asked.current.has(id), 200)
  useLoaded(
    async () => {
      const found = wanted.length
        ? await got(api.GET('/contacts', { params: { query: { ids: wanted.join(), limit: 200 } } })).catch(() => null)
        : { data: [], nextCursor: null }
      if (!found) return true
      // Newest first: a page of large ones ends before the last of them, who are asked for next.
      const last = found.nextCursor && found.data.at(-1)?.id
      for (const id of wanted.filter(one => !last || one >= last)) {
        asked.current.add(id)
        contacts.delete(id)
      } // nobody keeps the name of who was erased
      for (const each of found.data) contacts.set(each.id, called(each))
      return false
    },
    [wanted.join()],
    hasFailed => (hasFailed ? 5000 : 0), // as often as lists look
  )
  return contacts
}

export const ContactLink = ({ id, names }: { id: string | null; names: Map<string, string> }) =>
  id ? <Link to={`/contacts/${id}`}>{names.get(id) ?? id}</Link> : <span class="soft">erased</span>
