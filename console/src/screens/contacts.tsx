// Contacts: found, made, imported; and everything that is known of one, with all that happened.
import { useState } from 'preact/hooks'
import { api, byId, download, exactly, got, type Schemas } from '../api'
import { fields, useDraft, useListed, useStored, type Listed } from '../data'
import { CHANGED, Days, days } from '../days'
import { same, textOf } from '../exact'
import { explaining, Later, reaching } from '../later'
import { linesOf, valuesOf } from '../lines'
import { ListScreen, useNarrowed } from '../lists'
import { useAudit, useCan } from '../me'
import {
  called,
  FIELDS,
  FlowLink,
  List,
  merged,
  PERSON,
  Tags as KnownTags,
  TAGS,
  useFlowChoice,
  useFlowNames,
  useUsed,
} from '../names'
import { InUse } from '../offered'
import { go, useLocation, useFilter } from '../router'
import {
  Button,
  Changes,
  Confirm,
  Facts,
  Field,
  Form,
  Link,
  Screen,
  Search,
  Section,
  Shown,
  Status,
  Unread,
  When,
  plural,
  Zones,
  ZONES,
  ShowMore,
  Press,
  UPDATED,
} from '../ui'
import { Change as Edit } from '../unsaved'
import { Why, waiting } from './runs'

type Full = Schemas['ContactInFull']
type Happening = Schemas['Happening']

export function Contacts() {
  const { query } = useLocation()
  const [typed, q] = ['fields', 'q'].map(name => query.get(name) ?? '') as [string, string]
  const isShort = q.length < SHORTEST
  const { fields, others } = pairs(typed)
  const begun = typed.replace(/,$/, ', ').replace(/[^,\s][^,]*$/, '')
  const [isMore, setMore] = useState(false)
  const used = useUsed(isMore)
  const of = useNarrowed(
    '/contacts',
    asked => {
      const narrowed = { q: isShort ? undefined : q, metadata: fields.length ? Object.fromEntries(fields) : undefined }
      return api.GET('/contacts', { params: { query: { ...asked, ...narrowed } } })
    },
    FILTERS,
  )
  const may = useCan()('contacts:write')
  return (
    <ListScreen
      title="Contacts"
      lead="The people your flows know."
      one="contact"
      needs="contacts:write"
      actions={
        <>
          {may && (
            <Link class="button" to="/contacts/import">
              Import
            </Link>
          )}
          <Export
            of={[
              ...FILTERS.map(name => [name, name === 'q' && isShort ? '' : (query.get(name) ?? '')]),
              ...Object.entries(days(query)),
              ...fields.map(([name, value]) => [`metadata[${name}]`, value]),
            ]}
          />
        </>
      }
      opened={() => setMore(true)}
      more={
        <>
          <Search name="email" placeholder="full address" />
          <Search name="phone" placeholder="full number" />
          <Search
            label="Custom fields"
            name="fields"
            list={FIELDS}
            placeholder="plan = pro, city = Ulm"
            wrong={
              others.length ? `Ignored: “${others.join('”, “')}”. Write a name and a value, such as plan = pro.` : ''
            }
          />
          <List id={FIELDS} of={used.fields.map(({ name }) => `${begun}${name} = `)} />
          <Days of={CHANGED} />
        </>
      }
      filters={
        <>
          <Search
            label="Search"
            name="q"
            placeholder="email, phone or name starts with"
            wrong={q && isShort ? `Type at least ${SHORTEST} characters.` : ''}
          />
          <Search name="tag" list={TAGS} />
          <KnownTags />
        </>
      }
      empty={
        <>
          They appear when events arrive
          {may && (
            <>
              , or you <Link to="/contacts/import">import</Link> a file or <Link to="/contacts/new">create one</Link>
            </>
          )}
          .
        </>
      }
      of={of}
      columns={[...PERSON, ['Tags', each => <Tags of={each.tags} />], UPDATED]}
    />
  )
}

/** As a file, all that is narrowed by these filters. */
function Export({ of }: { of: string[][] }) {
  const narrowed = new URLSearchParams(of.filter(([, value]) => value))
  return (
    <Press work={() => download(`/contacts/export?${narrowed}`, 'contacts.csv')}>
      Export {narrowed.size ? 'these' : 'all'}
    </Press>
  )
}

const FILTERS = ['q', 'tag', 'email', 'phone'] as const
const SHORTEST = 2 // letters that can be searched for

/** `name = value, name = value`; a comma in a value is one as long as no other pair follows. And what is no such pair, nor the beginning of one. */
export function pairs(text: string): { fields: [string, string][]; others: string[] } {
  const parts = text
    .split(/,(?=[^,=]+=)/)
    .map(each => each.trim())
    .filter(Boolean)
    .map(each => ({ each, found: /^([^=]*[^=\s])\s*=\s*(.+)$/.exec(each) }))
  return {
    fields: parts.flatMap(({ found }) => (found ? [[found[1]!, found[2]!] as [string, string]] : [])),
    others: parts.flatMap(({ each, found }, at) =>
      found || (each.endsWith('=') && at === parts.length - 1) ? [] : [each],
    ),
  }
}

const Tags = ({ of }: { of: readonly string[] }) => (
  <>
    {of.map(tag => (
      <span key={tag} class="tag">
        {tag}
      </span>
    ))}
  </>
)

// --- made and changed ---

const LABELS = {
  email: 'Email',
  phone: 'Phone',
  firstName: 'First name',
  lastName: 'Last name',
  timezone: 'Time zone',
  locale: 'Language',
}
type Own = keyof typeof LABELS
const OWN_FIELDS = Object.keys(LABELS) as Own[]
type Draft = Record<Own | 'tags' | 'metadata', string>

const drafted = (contact?: Full) =>
  ({
    ...Object.fromEntries(OWN_FIELDS.map(name => [name, contact?.[name] ?? ''])),
    tags: contact?.tags.join('\n') ?? '',
    metadata: linesOf(contact?.metadata ?? {}),
  }) as Draft
const EMPTY = drafted()

/** Only what differs from what is stored; null takes away what no line names any more. */
function metadata(text: string, stored: Full['metadata'] = {}): Record<string, unknown> {
  const now = valuesOf(text, stored)
  const gone = Object.keys(stored)
    .filter(name => !Object.hasOwn(now, name))
    .map(name => [name, null])
  return Object.fromEntries([...gone, ...Object.entries(now).filter(([name, value]) => value !== stored[name])])
}

/** Whether this is what was typed; of 83.40 the service keeps the number. */
export function stands(now: Full, typed: Draft): boolean {
  const plain = (draft: Draft) => ({
    ...draft,
    metadata: JSON.parse(JSON.stringify(valuesOf(draft.metadata, now.metadata))) as object,
  })
  return same(plain(drafted(now)), plain(typed))
}

const written = (draft: Draft, stored?: Full) => ({
  ...Object.fromEntries(
    OWN_FIELDS.filter(name => stored || draft[name]).map(name => [name, draft[name].trim() || null]),
  ),
  tags: draft.tags
    .split('\n')
    .map(tag => tag.trim())
    .filter(Boolean),
  metadata: metadata(draft.metadata, stored?.metadata),
})

function ContactFields({ draft, change }: { draft: Draft; change: (changes: Partial<Draft>) => void }) {
  const field = fields(draft, change)
  return (
    <>
      <Zones />
      <div class="columns">
        {OWN_FIELDS.map(name => (
          <Field
            key={name}
            label={LABELS[name]}
            value={draft[name]}
            set={value => change({ [name]: value })}
            pointer={`/${name}`}
            {...(name === 'timezone' ? { list: ZONES } : {})}
            placeholder={name === 'timezone' ? 'Europe/Berlin' : name === 'locale' ? 'de-DE' : undefined}
          />
        ))}
      </div>
      <Field label="Tags" rows={3} hint="One per line." {...field('tags')} />
      <InUse text={draft.metadata} set={metadata => change({ metadata })}>
        <Field
          label="Custom fields"
          rows={3}
          hint="One per line: name = value. In double quotes, \n is a new line. A new true or false is no text unless it is in quotes, and what was a number stays one."
          {...field('metadata')}
        />
      </InUse>
    </>
  )
}

export function NewContact() {
  const [draft, change, forget] = useDraft('contact', EMPTY)
  return (
    <Screen title="New contact">
      <Form
        label="Create contact"
        submit={async () => {
          const made = await got(api.POST('/contacts', { body: written(draft) as Schemas['WritableContact'] }))
          forget(EMPTY, `contact.${made.id}`)
          go(`/contacts/${made.id}`)
        }}
      >
        <ContactFields draft={draft} change={change} />
      </Form>
    </Screen>
  )
}

// --- one contact ---

const MOST_SEGMENTS = 200 // as many as a workspace may have

export function Contact({ id }: { id: string }) {
  const [open, setOpen] = useState<'' | 'change' | 'message' | 'event'>('')
  const contact = useStored(
    () => exactly<Full>(`/contacts/${encodeURIComponent(id)}`),
    [id],
    open === 'change' ? 0 : 5000, // as flows change it
  )
  const timeline = useListed(
    cursor => got(api.GET('/contacts/{id}/activity', { params: { path: { id }, query: { cursor, limit: 50 } } })),
    ['activity', id],
    5000,
  )
  const segments = useListed(
    cursor =>
      got(api.GET('/contacts/{id}/segments', { params: { path: { id }, query: { cursor, limit: MOST_SEGMENTS } } })),
    ['segments', id],
    5000,
  )
  const isAudited = useAudit()
  const changes = useListed(
    cursor =>
      isAudited
        ? got(api.GET('/audit-logs', { params: { query: { resourceId: id, cursor, limit: 50 } } }))
        : NO_CHANGES,
    ['changes', id, isAudited],
  )
  const why = useFilter('why')
  const all = useFlowChoice(/^(all$|bro_)/.test(why) ? '' : why)
  const flows = useFlowNames(
    all,
    (timeline.rows ?? []).flatMap(each => each.run ?? []),
  )
  const toggle = (which: typeof open) =>
    ({ 'aria-expanded': open === which, onClick: () => setOpen(open === which ? '' : which) }) as const
  const may = useCan()
  const value = contact.value?.value
  return (
    <Screen
      title={value ? called(value) : 'Contact'}
      id={id}
      actions={
        value &&
        may('contacts:write') && (
          <>
            <Button {...toggle('change')}>Edit</Button>
            {may('messages:write') && <Button {...toggle('message')}>Send message</Button>}
            <Button {...toggle('event')}>Record event</Button>
            <Later load={reaching} show={({ Erase }) => <Erase contact={value} />} />
          </>
        )
      }
    >
      <Shown of={contact}>
        {({ value, tag }) => (
          <>
            {open === 'change' ? (
              <Edit
                name={`contact.${id}`}
                of={{ stored: value, tag, again: contact.again }}
                drafted={drafted}
                stands={stands}
                save={(draft, headers) => {
                  const body = written(draft, value) as Schemas['ContactPatch']
                  return got(api.PATCH('/contacts/{id}', { ...byId(id), headers, body }))
                }}
                done={() => {
                  setOpen('')
                  void contact.reload()
                  void timeline.reload()
                  void changes.reload()
                }}
              >
                {(draft, change) => <ContactFields draft={draft} change={change} />}
              </Edit>
            ) : (
              <Facts
                of={[
                  ['Email', value.email],
                  ['Phone', value.phone],
                  ['Time zone', value.timezone],
                  ['Language', value.locale],
                  ['Tags', value.tags.length ? <Tags of={value.tags} /> : 'none'],
                  [
                    'Segments',
                    !segments.rows ? (
                      <Unread of={segments} />
                    ) : segments.rows.length ? (
                      segments.rows.map(each => (
                        <span key={each.id} class="pair">
                          <Link to={`/segments/${each.id}`}>{each.name}</Link>
                        </span>
                      ))
                    ) : (
                      'none'
                    ),
                  ],
                  ...Object.entries(value.metadata).map(([name, one]) => [name, textOf(one)] as const),
                  [
                    'Subscriptions',
                    <>
                      {Object.entries(value.subscriptions).map(([channel, status]) => (
                        <span key={channel} class="pair">
                          {channel}: {status.replaceAll('_', ' ')}
                        </span>
                      ))}
                    </>,
                  ],
                  ['Created', <When at={value.createdAt} />],
                  ['Updated', <When at={value.updatedAt} />],
                ]}
              />
            )}
            {open === 'message' && (
              <Later
                load={reaching}
                show={({ SendMessage }) => <SendMessage contact={value} done={() => setOpen('')} />}
              />
            )}
            {open === 'event' && (
              <Later
                load={reaching}
                show={({ RecordEvent }) => (
                  <RecordEvent contact={value} done={() => setOpen('')} reload={timeline.reload} />
                )}
              />
            )}
            {value.suppressions.length > 0 && (
              <Section title="Suppressions">
                <ul class="plain">
                  {value.suppressions.map(held => (
                    <li key={held.id}>
                      {held.channel}: <b>{held.reason.replaceAll('_', ' ')}</b>{' '}
                      {may('suppressions:write') && (
                        <Confirm
                          label="Lift"
                          title="Lift this suppression?"
                          act={() => got(api.DELETE('/suppressions/{id}', byId(held.id))).then(contact.reload)}
                        >
                          <p>
                            Messages go to this address again. Do this only if you know that the address works, or that
                            the person wants it.
                          </p>
                        </Confirm>
                      )}
                    </li>
                  ))}
                </ul>
              </Section>
            )}
            <Later
              load={reaching}
              show={({ Answers }) => (
                <Answers
                  contact={value}
                  done={async () => {
                    await contact.reload()
                    await timeline.reload()
                  }}
                />
              )}
            />
            <Later load={explaining} show={({ WhyNot }) => <WhyNot contactId={id} all={all} />} />
            <Section
              title="Activity"
              actions={
                <span class="actions">
                  <Link to={`/runs?contactId=${id}`}>Their runs</Link>{' '}
                  <Link to={`/messages?contactId=${id}`}>Their messages</Link>
                </span>
              }
            >
              <Timeline of={timeline} changes={changes} flows={flows} />
            </Section>
          </>
        )}
      </Shown>
    </Screen>
  )
}

type Change = Omit<Schemas['AuditLog'], 'changes'> & { changes: Record<string, unknown[]> | null }
const NO_CHANGES = Promise.resolve({ data: [] as Change[], nextCursor: null })
const MADE: Record<string, string> = { created: 'Created', updated: 'Updated', erased: 'Erased' }

/** Both lists in one, as far back as both are known. */
function Timeline({
  of,
  changes,
  flows,
}: {
  of: Listed<Happening>
  changes: Listed<Change>
  flows: Map<string, string>
}) {
  const acts = (changes.rows ?? [])
    .filter(each => each.action !== 'contact.event')
    .map(each => ({ id: each.id, createdAt: each.createdAt, show: () => changed(each) }))
  const all = merged(
    {
      ...of,
      rows:
        of.rows && of.rows.map(each => ({ id: each.id, createdAt: each.createdAt, show: () => happened(each, flows) })),
    },
    { ...changes, rows: acts },
  )
  if (!all.rows || (all.problem && !all.rows.length)) return <Unread of={all} />
  if (!all.rows.length && !all.more) return <p class="empty">No activity yet: no event, run or message.</p>
  return (
    <>
      {all.problem && <Unread of={all} />}
      <ol class="timeline">
        {all.rows.map(each => (
          <li key={each.id}>
            <span class="soft">
              <When at={each.createdAt} />
            </span>
            <div>{each.show()}</div>
          </li>
        ))}
      </ol>
      <ShowMore of={all} />
    </>
  )
}

/** Who changed what. */
function changed({ action, actor, changes }: Change) {
  const act = action.split('.').at(-1) ?? ''
  return (
    <>
      <p>
        {MADE[act] ?? act.replaceAll('_', ' ')} by <b>{actor.name}</b>
      </p>
      {act !== 'created' && <Changes of={changes ?? {}} />}
    </>
  )
}

function happened({ run, message, event, consent }: Happening, flows: Map<string, string>) {
  if (run)
    return (
      <>
        <p>
          Run of <FlowLink run={run} names={flows} /> <Status value={run.status} />{' '}
          <Link to={`/runs/${run.id}`}>view steps</Link>
        </p>
        <Why reason={run.reason ?? (run.waitingFor ? { detail: waiting(run.waitingFor) } : null)} />
      </>
    )
  if (message)
    return (
      <>
        <p>
          Message via {message.channel} <Status value={message.status} />{' '}
          <Link to={`/messages/${message.id}`}>view message</Link>
          {message.attempts.length > 1 && `, ${plural(message.attempts.length, 'attempt')}`}
        </p>
        <Why reason={message.reason} />
      </>
    )
  if (event)
    return (
      <p>
        Event{' '}
        <Link to={`/events/${event.id}`}>
          <b>{event.name}</b>
        </Link>
      </p>
    )
  if (consent)
    return (
      <p>
        {consent.channel}: <b>{consent.change.replaceAll('_', ' ')}</b>
        {consent.reason && ` (${consent.reason})`}, by {consent.source.replaceAll('_', ' ')}
      </p>
    )
  return null
}
