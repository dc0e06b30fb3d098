// What a member does for one contact: sends a message, records an event, or erases all that there is of it.
import { useState } from 'preact/hooks'
import { api, byId, got, type Schemas } from '../api'
import { fields, useDraft } from '../data'
import { objectOf } from '../exact'
import { called, EVENTS, List, options, plain, useTemplates, useUsed } from '../names'
import { go } from '../router'
import { Refusal } from '../session'
import type { CHANNELS } from '../words'
import { Button, Confirm, Field, Form, JsonText, Link, Section, plural } from '../ui'
import { reachable } from './answers'

type Contact = Schemas['ContactInFull']
type Doing = { contact: Contact; done: () => void }

export function SendMessage({ contact, done }: Doing) {
  const [draft, change, forget] = useDraft(`message.${contact.id}`, { templateId: '', data: '{}', sendAt: '' })
  const field = fields(draft, change)
  const all = useTemplates(draft.templateId)
  const templates = {
    ...all,
    rows: all.rows && all.rows.filter(each => reachable(contact, each.channel as keyof typeof CHANNELS)),
  }
  const template = templates.rows?.find(each => each.id === draft.templateId)
  return (
    <Section title="Send message">
      <Form
        label="Send"
        extra={<Button onClick={done}>Cancel</Button>}
        submit={async () => {
          const body = {
            channel: template?.channel ?? 'email',
            contactId: contact.id,
            templateId: draft.templateId,
            data: objectOf(draft.data, '/data'),
            sendAt: draft.sendAt ? new Date(draft.sendAt).toISOString() : null,
          }
          const { messageId } = await got(api.POST('/messages', { body: body as Schemas['NewMessage'] }))
          forget()
          go(`/messages/${messageId}`)
        }}
      >
        <Field
          label="Template"
          required
          {...field('templateId')}
          options={[['', 'choose one'], ...options(templates)]}
          growing={templates}
          hint={
            template ? (
              `Via ${template.channel}, ${template.category}.`
            ) : templates.rows?.length === 0 ? (
              <>
                No template fits a channel on which the contact has an address.{' '}
                <Link to="/templates/new">Create one</Link>
              </>
            ) : (
              'The template sets the channel.'
            )
          }
        />
        <div class="columns">
          <JsonText
            label="Event (JSON)"
            rows={3}
            {...field('data')}
            hint="Optional: what the template reads as trigger."
          />
          <Field label="Send at" type="datetime-local" {...field('sendAt')} hint="In your time zone. Empty: at once." />
        </div>
        <p class="hint">It is sent only if the contact may be written to at that time.</p>
      </Form>
    </Section>
  )
}

export function RecordEvent({ contact, done, reload }: Doing & { reload: () => Promise<void> }) {
  const [draft, change, forget] = useDraft(`event.${contact.id}`, { name: '', properties: '{}' })
  const field = fields(draft, change)
  const [recorded, setRecorded] = useState('')
  return (
    <Section title="Record event">
      <Form
        label="Record"
        extra={<Button onClick={done}>Cancel</Button>}
        submit={async () => {
          setRecorded('')
          const { name } = await got(
            api.POST('/contacts/{id}/events', {
              ...byId(contact.id),
              body: { name: draft.name, properties: objectOf(draft.properties, '/properties') },
            }),
          )
          forget()
          setRecorded(name)
          await reload()
        }}
      >
        <Field
          label="Name"
          required
          {...field('name')}
          list={EVENTS}
          placeholder="checkout_started"
          hint="It starts flows that it triggers, and continues runs that wait for it."
        />
        <List id={EVENTS} of={useUsed().events} />
        <JsonText
          label="Properties (JSON)"
          rows={3}
          hint={
            <>
              Optional. Such as <code>{'{"total": 49}'}</code>.
            </>
          }
          {...field('properties')}
        />
      </Form>
      {recorded && <p role="status">{recorded} was recorded; see below what came of it.</p>}
    </Section>
  )
}

type Happened = Pick<Schemas['Happening'], 'type' | 'run'>
const MOST_COUNTED = 1_000 // of what happened, the newest
const MOST = 200 // of one answer

/** What goes with a contact, of all that happened or of the newest of it. */
export function goes(happened: readonly Happened[], isAll: boolean): string {
  const count = (type: Happened['type']) => happened.filter(each => each.type === type).length
  const ending = happened.filter(each => each.run && !each.run.finishedAt).length
  return (
    `This also deletes ${plural(count('event'), 'event')}, and the contact’s data in ${plural(count('run'), 'run')} and ${plural(count('message'), 'message')}` +
    `${isAll ? '' : `, counting only the newest ${happened.length.toLocaleString()} activities`}.${ending ? ` ${plural(ending, 'run')} in progress ${ending === 1 ? 'ends' : 'end'}.` : ''}`
  )
}

/** What goes with this contact, as it is asked for page by page. */
export async function counted(id: string): Promise<string> {
  const happened: Happened[] = []
  for (let cursor: string | undefined; ;) {
    const { data, nextCursor } = await got(
      api.GET('/contacts/{id}/activity', { params: { path: { id }, query: { cursor, limit: MOST } } }),
    )
    happened.push(...data)
    if (nextCursor === null || happened.length >= MOST_COUNTED) return goes(happened, nextCursor === null)
    cursor = nextCursor
  }
}

export function Erase({ contact }: { contact: Contact }) {
  const [found, setFound] = useState('')
  const [typed, setTyped] = useState('')
  const name = plain(called(contact))
  const erase = async () => {
    if (plain(typed) !== name)
      throw new Refusal(422, 'invalid', '', [{ pointer: '/name', message: `Must be ${name}. Nothing was erased.` }])
    await got(api.DELETE('/contacts/{id}', byId(contact.id)))
    go('/contacts')
  }
  return (
    <Confirm
      label="Erase"
      danger
      title={`Erase ${name}?`}
      sure="Erase permanently"
      read={async () => {
        setTyped('')
        setFound('')
        setFound(await counted(contact.id).catch(() => 'What else this deletes could not be counted.'))
      }}
      act={erase}
    >
      <p>
        The contact is deleted, with its events, its tags, and its data in runs and messages. Its runs end. Its address
        is kept as a hash on the suppression list, so that nothing is sent to it by mistake. This cannot be undone.
      </p>
      <p role="status">
        <b>{found}</b>
      </p>
      <Field label="Type the name above to confirm" value={typed} set={setTyped} autocomplete="off" pointer="/name" />
    </Confirm>
  )
}
