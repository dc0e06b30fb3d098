// What a member does for one contact: sends a message, or records an event.
import { useState } from 'preact/hooks'
import { api, got, type Schemas } from '../api'
import { useAct, useDraft } from '../data'
import { objectOf } from '../exact'
import { options, useTemplates } from '../names'
import { go } from '../router'
import type { CHANNELS } from '../words'
import { Field, Form, JsonText, Link, Section } from '../ui'
import { reachable } from './answers'

type Contact = Schemas['ContactInFull']
type Doing = { contact: Contact; done: () => void }

export function SendMessage({ contact, done }: Doing) {
  const [draft, change, forget] = useDraft(`message.${contact.id}`, { templateId: '', data: '{}', sendAt: '' })
  const all = useTemplates(draft.templateId)
  const templates = { ...all, rows: all.rows && all.rows.filter(each => reachable(contact, each.channel as keyof typeof CHANNELS)) }
  const template = templates.rows?.find(each => each.id === draft.templateId)
  const act = useAct()
  return <Section title="Send a message"><Form act={act} label="Send it" extra={<button type="button" onClick={done}>Leave it</button>} submit={async () => {
    const body = { channel: template?.channel ?? 'email', contactId: contact.id, templateId: draft.templateId, data: objectOf(draft.data, '/data'), sendAt: draft.sendAt ? new Date(draft.sendAt).toISOString() : null }
    const { messageId } = await got(api.POST('/messages', { body: body as never }))
    forget()
    go(`/messages/${messageId}`)
  }}>
    <Field label="What it says" required value={draft.templateId} set={templateId => change({ templateId })} options={[['', 'choose one'], ...options(templates)]} growing={templates} pointer="/templateId"
      hint={template ? `By ${template.channel}, ${template.category}.` : templates.rows?.length === 0 ? <>No template is for a channel on which the contact has an address. <Link to="/templates/new">Make one</Link></> : 'A template; it says by which channel it goes.'} />
    <div class="columns">
      <JsonText label="The event, as JSON" rows={3} value={draft.data} set={data => change({ data })} pointer="/data" hint="The template reads it as trigger." />
      <Field label="It leaves" type="datetime-local" value={draft.sendAt} set={sendAt => change({ sendAt })} pointer="/sendAt" hint="By your clock; empty: at once." />
    </div>
    <p class="hint">It is sent if the contact may be written to when it leaves.</p>
  </Form></Section>
}

export function RecordEvent({ contact, done }: Doing) {
  const [draft, change, forget] = useDraft(`event.${contact.id}`, { name: '', properties: '{}' })
  const [recorded, setRecorded] = useState('')
  const act = useAct()
  return <Section title="Record an event"><Form act={act} label="Record it" extra={<button type="button" onClick={done}>Leave it</button>} submit={async () => {
    const { name } = await got(api.POST('/contacts/{id}/events', { params: { path: { id: contact.id } }, body: { name: draft.name, properties: objectOf(draft.properties, '/properties') } as never }))
    forget()
    setRecorded(name)
  }}>
    <Field label="Name" required value={draft.name} set={name => change({ name })} pointer="/name" placeholder="checkout_started" hint="Flows that begin with it start; runs that wait for it go on." />
    <JsonText label="Properties, as JSON" rows={3} value={draft.properties} set={properties => change({ properties })} pointer="/properties" />
    {recorded && <p role="status">{recorded} is recorded; below is what came of it.</p>}
  </Form></Section>
}
