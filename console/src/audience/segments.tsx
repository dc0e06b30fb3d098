// Segments: rules by which contacts belong together, whom they find, and who is in them.
import { useState } from 'preact/hooks'
import { api, byId, exactly, got, settled, type Schemas } from '../api'
import { useAct, useDraft, useListed, useLoaded, useStored } from '../data'
import { CHANGED, Days, days } from '../days'
import { First } from '../errors'
import { useCan } from '../me'
import { UsedBy, called, meant } from '../names'
import { go, useLocation } from '../router'
import { Check, Confirm, Facts, Field, Filters, Form, Json, Link, Screen, Section, Shown, Table, When } from '../ui'
import { Unsaved } from '../unsaved'
import { BLANK, FilterField, FoundShown, filterOf, useFound } from './filter'

type Stored = Schemas['SegmentShape']
const KINDS = [
  ['live', 'live: contacts enter once they match'],
  ['frozen', 'frozen: contacts that match when it is saved'],
] as const
const count = ({ count, reason }: Stored) =>
  [count === null && !reason ? 'being counted' : count?.toLocaleString(), reason && 'given up']
    .filter(Boolean)
    .join(', ')

export function Segments() {
  const { query } = useLocation()
  const list = useListed(
    cursor => got(api.GET('/segments', { params: { query: { ...days(query), cursor, limit: 50 } } })),
    [query.toString()],
    5000,
  )
  const may = useCan()('contacts:write')
  return (
    <Screen
      title="Segments"
      lead="Groups of contacts, defined by rules."
      actions={
        may && (
          <Link class="button primary" to="/segments/new">
            New segment
          </Link>
        )
      }
    >
      <Filters>
        <Days of={CHANGED} />
      </Filters>
      <Table
        caption="Segments, newest first"
        of={list}
        id={each => each.id}
        empty={
          query.size ? (
            <p>
              No segments match. <Link to="/segments">Show all</Link>.
            </p>
          ) : (
            <p>No segments yet. {may && <Link to="/segments/new">Create one</Link>}</p>
          )
        }
        columns={[
          { name: 'Name', show: each => <Link to={`/segments/${each.id}`}>{each.name}</Link> },
          { name: 'Rule', class: 'wide', show: each => each.prose },
          { name: 'Contacts', show: count },
          { name: 'Type', show: each => each.kind },
          { name: 'Updated', show: each => <When at={each.updatedAt} /> },
        ]}
      />
    </Screen>
  )
}

export function Segment({ id }: { id: string }) {
  const path = byId(id)
  const segment = useLoaded(
    async () => (await exactly<Stored>(`/segments/${encodeURIComponent(id)}`)).value,
    [id],
    value => (value.count === null ? 1000 : 10_000),
  )
  const members = useListed(
    cursor => got(api.GET('/segments/{id}/contacts', { params: { path: { id }, query: { cursor, limit: 50 } } })),
    ['contacts', id],
    5000,
  )
  const may = useCan()
  const value = segment.value
  return (
    <Screen
      title={value?.name ?? 'Segment'}
      lead={<code>{id}</code>}
      actions={
        value && (
          <>
            {may('broadcasts:write') && (
              <Link class="button" to={`/broadcasts/new?segment=${id}`}>
                New broadcast
              </Link>
            )}
            {may('contacts:write') && (
              <Link class="button primary" to={`/segments/${id}/edit`}>
                Edit
              </Link>
            )}
            {may('contacts:write') && (
              <Confirm
                label="Delete"
                danger
                title={`Delete ${value.name}?`}
                act={async () => {
                  await got(api.DELETE('/segments/{id}', path))
                  go('/segments')
                }}
              >
                <p>Its contacts stay. It cannot be deleted while something uses it; “Used by” says what does.</p>
              </Confirm>
            )}
          </>
        )
      }
    >
      <Shown of={segment}>
        {value => (
          <>
            <p class="prose">{value.prose}</p>
            {(value.reason || value.count === null) && (
              <p class="note">
                {value.reason?.detail ??
                  'Being filled: until it is complete, contacts who enter or leave it start flows only if that was chosen when it was saved.'}
              </p>
            )}
            <Facts
              of={[
                ['Contacts', count(value)],
                ['Counted', <When at={value.countedAt} />],
                ['Type', value.kind],
                ['Created', <When at={value.createdAt} />],
                ['Updated', <When at={value.updatedAt} />],
              ]}
            />
            <Section title="Contacts">
              <Table
                caption="Contacts, newest first"
                of={members}
                id={each => each.id}
                empty={
                  <p>
                    {value.count === null || value.reason
                      ? 'None found so far.'
                      : value.kind === 'live'
                        ? 'No contacts match yet. Whoever matches later is added.'
                        : 'Nobody is in it.'}{' '}
                    {value.kind === 'frozen' && may('contacts:write') && 'Edit its filter to find others.'}
                  </p>
                }
                columns={[
                  { name: 'Name', show: each => <Link to={`/contacts/${each.id}`}>{called(each)}</Link> },
                  { name: 'Email', show: each => each.email ?? '–' },
                  { name: 'Phone', show: each => each.phone ?? '–' },
                  { name: 'Updated', show: each => <When at={each.updatedAt} /> },
                ]}
              />
            </Section>
            <UsedBy
              id={id}
              nothing="Nothing yet. Flows, broadcasts and other segments can."
              read={() => got(api.GET('/segments/{id}/uses', path))}
            />
            <Section title="Filter">
              <Json value={value.filter} open={false} />
            </Section>
          </>
        )}
      </Shown>
    </Screen>
  )
}

export function EditSegment({ id }: { id: string }) {
  const segment = useStored(() => exactly<Stored>(`/segments/${encodeURIComponent(id)}`), [id])
  if (segment.value === null)
    return (
      <Screen title="Segment">
        <Shown of={segment}>{() => null}</Shown>
      </Screen>
    )
  return <Editor stored={segment.value.value} tag={segment.value.tag} again={segment.again} />
}

export const NewSegment = () => <Editor stored={null} tag="" again={null} />

const drafted = (stored: Stored | null) =>
  stored
    ? { name: stored.name, kind: stored.kind as string, filter: JSON.stringify(stored.filter, null, 2) }
    : { name: '', kind: 'live', filter: BLANK }

function Editor({ stored, tag, again }: { stored: Stored | null; tag: string; again: (() => Promise<Stored>) | null }) {
  const initial = drafted(stored)
  const [draft, change, forget, held] = useDraft(`segment.${stored?.id ?? 'new'}`, initial, tag)
  const [starts, setStarts] = useState(false)
  const [typed, setTyped] = useState('')
  const [contactId, setContact] = useState<string | null>(null)
  const act = useAct()
  const trying = useAct()
  const { found, problem } = useFound(draft.filter, contactId)
  const save = async () => {
    const body = { name: draft.name, kind: draft.kind, filter: filterOf(draft.filter) } as Schemas['WritableSegment']
    const query = { startAutomations: starts }
    if (!stored || !again) {
      const made = await got(api.POST('/segments', { params: { query }, body }))
      return go(`/segments/${made.id}${forget(initial, `segment.${made.id}`) ? '' : '/edit'}`)
    }
    const { id } = stored
    await settled(
      got(api.PATCH('/segments/{id}', { params: { path: { id }, query }, headers: { 'If-Match': held.tag }, body })),
      async () => JSON.stringify(drafted(await again())) === JSON.stringify(draft),
    )
    if (forget(draft)) go(`/segments/${id}`)
    else await again()
  }
  return (
    <Screen title={stored ? `Edit ${stored.name}` : 'New segment'} lead={stored && <code>{stored.id}</code>}>
      <Unsaved of={held} {...(stored ? {} : { label: 'Start over' })} />
      <div class="beside">
        <Form act={act} label={stored ? 'Save' : 'Create segment'} submit={save}>
          <Field label="Name" required value={draft.name} set={name => change({ name })} pointer="/name" />
          <Field label="Type" value={draft.kind} set={kind => change({ kind })} options={KINDS} pointer="/kind" />
          <FilterField
            text={draft.filter}
            set={filter => change({ filter })}
            problem={problem}
            {...(stored ? { own: stored.id } : {})}
          />
          <Check
            label="Start flows triggered by this segment for contacts that the change moves in or out"
            value={starts}
            set={setStarts}
          />
        </Form>
        <Section title="Matching contacts">
          <FoundShown found={found} problem={problem} />
          <Form act={trying} label="Test contact" submit={async () => setContact(await meant(typed))}>
            <First problem={problem}>
              <Field
                label="Contact"
                required
                value={typed}
                set={setTyped}
                pointer="/contactId"
                hint="Email address, name or ID."
              />
            </First>
          </Form>
          {found?.contact && (
            <div role="status">
              <p>
                <Link to={`/contacts/${found.contact.contactId}`}>{typed}</Link>{' '}
                {found.contact.holds ? 'matches.' : 'does not match.'}
              </p>
              <Json value={found.contact.operands} name="comparisons" open={false} />
            </div>
          )}
        </Section>
      </div>
    </Screen>
  )
}
