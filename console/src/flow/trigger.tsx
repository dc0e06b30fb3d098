// The form of a trigger: what starts runs, for which contact, and when.
import { Later } from '../later'
import { Length } from '../lengths'
import { List, Names, useUsed, type Kind } from '../names'
import { triggerPath, useWebhookSchema } from '../webhooks'
import { SOURCES } from '../words'
import { Button, Check, Field, step } from '../ui'
import { PATHS } from './conditions'
import { DEFAULTS, Members, SETTABLE, said, textOf, type Finding } from './form'
import { plain, type Kinds } from './kinds'
import { placeOf, put, type Doc, type Json } from './model'

// Loaded once they are wanted.
const timing = () => import('./occasions')
const greeting = () => import('./newcomer')

export interface OfTrigger {
  doc: Doc
  all: Kinds
  findings: readonly Finding[]
  edit: (doc: Doc, label?: string) => void
  secret: string
  setSecret: (secret: string) => void
  hasSecret: boolean
  of: Kind
  id: string
}

/** The members that a form is made for from their schema; dates and schedules have one of their own. */
const OF_SOURCE: Record<string, string[]> = {
  inbound_webhook: ['contactLookup', 'contactPath', 'metadataField', 'dedupePath'],
  tag_added: ['tag'],
  event: ['name'],
  segment_entered: ['segmentId'],
  segment_left: ['segmentId'],
  date: ['graceWindow'],
  schedule: ['segmentId', 'graceWindow'],
}
const OF_CONTACTS = [
  'email',
  'phone',
  ...DEFAULTS,
  'createdAt',
  'tags',
  'subscriptions.email',
  'subscriptions.sms',
  'subscriptions.whatsapp',
  'metadata.',
]

/** What would find a contact in the requests that came, best first. */
function Proposed({ of, id, use }: { of: Kind; id: string; use: (lookup: Json) => void }) {
  const found = useWebhookSchema(of, id)?.lookups.slice(0, 4)
  if (!found?.length) return null
  return (
    <>
      <p class="hint">In received requests, a contact would be found by</p>
      <ul class="plain">
        {found.map(({ contactLookup, contactPath, metadataField, share }) => (
          <li key={contactPath + contactLookup}>
            <Button
              small
              onClick={() => use({ contactLookup, contactPath, ...(metadataField ? { metadataField } : {}) })}
            >
              {contactLookup.replace('_', ' ')} at {contactPath}
            </Button>{' '}
            <span class="soft">{Math.round(share * 100)} %</span>
          </li>
        ))}
      </ul>
    </>
  )
}

/** Proposes what contacts have and did, and to conditions also what came to the webhook. */
export function Known({ of, id, isHook }: { of: Kind; id: string; isHook: boolean }) {
  const came = useWebhookSchema(of, id, isHook),
    used = useUsed()
  const paths = [
    ...OF_CONTACTS.map(name => `contact.${name}`),
    ...used.fields.map(each => step('contact.metadata', each.name)),
    ...(came?.paths ?? []).map(each => triggerPath(each.path)),
  ]
  return (
    <>
      <Names of={used} />
      <List id={PATHS} of={paths} />
      <List id={SETTABLE} of={['email', 'phone', ...DEFAULTS, ...used.fields.map(each => `metadata.${each.name}`)]} />
    </>
  )
}

const AGAIN = [
  ['', 'yes'],
  ['once', 'no: once only'],
  ['not_while_running', 'not while in a run'],
  ['after', 'after some time'],
] as const

/** Whether who went through may go through again. */
function Reentry({ value, set }: { value: unknown; set: (reentry: unknown) => void }) {
  const after = typeof value === 'object' && value !== null ? textOf((value as Json).after ?? '') : null
  return (
    <>
      <Field
        label="May a contact go through again?"
        value={after !== null ? 'after' : value === 'always' || value == null ? '' : textOf(value)}
        options={AGAIN}
        set={chosen => set(chosen === 'after' ? { after: 'P7D' } : chosen || undefined)}
        pointer="/trigger/reentry"
      />
      {after !== null && (
        <Length label="After" value={after} set={text => set({ after: text })} pointer="/trigger/reentry/after" />
      )}
    </>
  )
}

export function Trigger({ doc, all, findings, edit, secret, setSecret, hasSecret, of, id }: OfTrigger) {
  const { trigger } = doc,
    source = textOf(trigger.source ?? 'manual'),
    schema = all.triggers.get(source)
  const isHere = (name: string) => name !== 'metadataField' || trigger.contactLookup === 'contact_id'
  /** Of the trigger as it stands, as the form of this source says it. */
  const member = (name: string) => {
    const found = plain(schema?.properties?.[name] ?? {}, all.defs)
    return [
      name,
      {
        ...found,
        description: found.description?.replace(/^With [^:]*: (.)/, (_, first: string) => first.toUpperCase()) ?? '',
      },
    ] as const
  }
  const set = (next: unknown) => {
    const changed = { ...doc, trigger: next as Json }
    edit(changed, placeOf(doc, changed))
  }
  const shared = { value: trigger, set },
    used = useUsed()
  return (
    <>
      <Names of={used} />
      <Field
        label="What starts a run"
        value={source}
        set={chosen => set({ ...trigger, source: chosen })}
        pointer="/trigger/source"
        hint={said(schema?.description ?? '')}
        options={[...new Set([...all.triggers.keys(), source])].map(each => [each, SOURCES[each] ?? each] as const)}
      />
      {source === 'date' && <Later load={timing} show={({ DateOf }) => <DateOf {...shared} />} />}
      {source === 'schedule' && <Later load={timing} show={({ Schedule }) => <Schedule {...shared} />} />}
      <Members
        place={['trigger']}
        schema={{ properties: Object.fromEntries((OF_SOURCE[source] ?? []).filter(isHere).map(member)) }}
        value={trigger}
        set={set}
        of={{ all, findings }}
      />
      <Reentry value={trigger.reentry} set={reentry => set(put(trigger, ['reentry'], reentry))} />
      {source === 'inbound_webhook' && (
        <>
          <Proposed of={of} id={id} use={lookup => set({ ...trigger, ...lookup })} />
          <Field
            label="Signing secret"
            autocomplete="off"
            value={secret}
            set={setSecret}
            pointer="/trigger/signingSecret"
            hint={
              hasSecret
                ? 'One is set; a new one replaces it when you save.'
                : 'Senders sign with it. Empty: anyone who knows the URL can post.'
            }
          />
          <Check
            label="Create contacts that are not known yet"
            value={trigger.createContact === true}
            set={on => set({ ...trigger, createContact: on })}
            pointer="/trigger/createContact"
          />
          {trigger.createContact === true && (
            <Later
              load={greeting}
              show={({ NewContact }) => (
                <NewContact
                  defaults={(trigger.contactDefaults ?? {}) as Json}
                  set={next => set(put(trigger, ['contactDefaults'], next))}
                />
              )}
            />
          )}
        </>
      )}
    </>
  )
}
