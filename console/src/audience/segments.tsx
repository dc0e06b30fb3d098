// Segments: rules by which contacts belong together, whom they find, and who is in them.
import { useState } from 'preact/hooks'
import { api, byId, exactly, got, settled, type Schemas } from '../api'
import { fields, useDraft, useListed, useLoaded, useStored, type Edited } from '../data'
import { CHANGED, Days } from '../days'
import { First } from '../errors'
import { pretty, same } from '../exact'
import { ListScreen, useNarrowed } from '../lists'
import { useCan } from '../me'
import { PERSON, UsedBy, Whom, meant } from '../names'
import { go } from '../router'
import {
  Check,
  Confirm,
  Facts,
  Field,
  Form,
  Json,
  Link,
  Opened,
  Screen,
  Section,
  Shown,
  Table,
  When,
  UPDATED,
} from '../ui'
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

export const Segments = () => (
  <ListScreen
    title="Segments"
    lead="Groups of contacts, defined by rules."
    one="segment"
    needs="contacts:write"
    filters={<Days of={CHANGED} />}
    of={useNarrowed('/segments', asked => api.GET('/segments', { params: { query: asked } }), [], 5000)}
    columns={[
      ['Name', each => <Link to={`/segments/${each.id}`}>{each.name}</Link>],
      ['Rule', each => each.prose, 'wide'],
      ['Contacts', count],
      ['Type', each => each.kind],
      UPDATED,
    ]}
  />
)

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
      id={id}
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
                ['Type', KINDS.find(([kind]) => kind === value.kind)?.[1]],
                ['Created', <When at={value.createdAt} />],
                ['Updated', <When at={value.updatedAt} />],
              ]}
            />
            <Section title="Contacts">
              <Table
                what="contacts"
                of={members}
                none={
                  value.count === null || value.reason
                    ? 'None found so far.'
                    : value.kind === 'live'
                      ? 'No contacts match yet. Whoever matches later is added.'
                      : 'Nobody is in it.'
                }
                empty={value.kind === 'frozen' && may('contacts:write') && 'Edit its filter to find others.'}
                columns={[...PERSON, UPDATED]}
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

export const EditSegment = ({ id }: { id: string }) => (
  <Opened title="Segment" of={useStored(() => exactly<Stored>(`/segments/${encodeURIComponent(id)}`), [id])}>
    {edited => <Editor {...edited} />}
  </Opened>
)

export const NewSegment = () => <Editor />

const drafted = (stored?: Stored) =>
  stored
    ? { name: stored.name, kind: stored.kind as string, filter: pretty(stored.filter) }
    : { name: '', kind: 'live', filter: BLANK }

function Editor({ stored, tag, again }: Partial<Edited<Stored>>) {
  const initial = drafted(stored)
  const [draft, change, forget, held] = useDraft(`segment.${stored?.id ?? 'new'}`, initial, tag)
  const field = fields(draft, change)
  const [starts, setStarts] = useState(false)
  const [typed, setTyped] = useState('')
  const [tested, setTested] = useState({ id: null as string | null, name: '' })
  const looked = useFound(draft.filter, tested.id),
    { found, problem } = looked
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
      async () => same(drafted(await again()), draft),
    )
    if (forget(draft)) go(`/segments/${id}`)
    else await again()
  }
  return (
    <Screen title={stored ? `Edit ${stored.name}` : 'New segment'} id={stored?.id}>
      <Unsaved of={held} {...(stored ? {} : { label: 'Start over' })} />
      <div class="beside">
        <Form label={stored ? 'Save' : 'Create segment'} submit={save}>
          <Field label="Name" required {...field('name')} />
          <Field label="Type" {...field('kind')} options={KINDS} />
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
          <FoundShown {...looked} />
          <Form
            label="Test contact"
            submit={async () => {
              setTested({ id: null, name: '' })
              setTested({ id: await meant(typed), name: typed })
            }}
          >
            <First problem={problem}>
              <Whom required value={typed} set={setTyped} />
            </First>
          </Form>
          {found?.contact && found.contact.contactId === tested.id && (
            <div role="status">
              <p>
                <Link to={`/contacts/${found.contact.contactId}`}>{tested.name}</Link>{' '}
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
