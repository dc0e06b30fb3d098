// The form beside the canvas: the members of one card, and where its ports lead.
import { useLoaded } from '../data'
import type { Kind } from '../names'
import { webhookSchema } from '../paths'
import { KINDS } from '../words'
import { Check, Field } from '../ui'
import { Members, Typed, refusalOf, words, type Finding } from './form'
import { TRIGGER, plain, portsOf, type Kinds, type Schema } from './kinds'
import { at, connected, moved, pointer, put, renamed, type Card, type Doc, type Exit, type Json, type View } from './model'

interface Props {
  doc: Doc; card: Card; seen: View; all: Kinds; findings: readonly Finding[]; free: boolean; edit: (doc: Doc, label?: string) => void; aim: (exit: Exit) => void; remove: () => void
  select: (ids: string[]) => void; secret: string; setSecret: (secret: string) => void; hasSecret: boolean; of: Kind; id: string
}

export function Inspector(props: Props) {
  const { doc, card, seen, all, findings, free, edit, remove } = props
  const found = findings.filter(each => each.pointer === pointer(card.place) || each.pointer === pointer(card.config) || /\/type$/.test(each.pointer) && each.pointer === `${pointer(card.place)}/type`)
  const kind = all.all.get(card.kind)
  const schema: Schema = kind?.schema ?? {}
  const arms = new Set(free ? [] : [...portsOf(all, card.kind).open, ...portsOf(all, card.kind).wired].filter(port => Array.isArray(card.members[port])))
  const own = Object.keys(schema.properties ?? {}).filter(name => !arms.has(name))
  const index = Number(card.place.at(-1))
  const siblings = free ? 0 : (at(doc, card.place.slice(0, -1)) as unknown[] | undefined)?.length ?? 0
  /** The members of a card, kept beside what the form does not show: its name, its kind, its arms. */
  const set = (next: unknown) => {
    const changed = next as Json
    edit(put(doc, card.config, changed), `${card.id} ${Object.keys(changed).find(name => changed[name] !== card.members[name]) ?? ''}`)
  }
  return <>
    <h2 tabIndex={-1}>{KINDS[card.kind] ?? words(card.kind)}</h2>
    {kind && <p class="hint">{kind.about.split('`').map((part, place) => (place % 2 ? <code key={place}>{part}</code> : part))}</p>}
    {found.map(each => <p key={each.code} class={each.severity === 'error' ? 'wrong' : 'odd'}>{each.message}</p>)}
    {card.kind === TRIGGER ? <Trigger {...props} /> : <>
      <Typed label="ID" text={typeof (at(doc, card.place) as Json | undefined)?.id === 'string' ? String((at(doc, card.place) as Json).id) : ''} findings={findings} pointer={`${pointer(card.place)}/id`} hint={<>Its name; <code>{`{{steps.${card.id}…}}`}</code> reads what it left.</>}
        read={text => {
          if (free && (!text || seen.cards.some(other => other !== card && other.id === text))) return text ? 'Another one is called so.' : 'It needs a name.'
          edit(renamed(doc, card, text), `${pointer(card.place)} id`)
          props.select([text || card.id])
          return undefined
        }} />
      <Members place={card.config} schema={schema} value={card.members} set={set} of={{ all, findings, locked: false }} only={own} />
    </>}
    <Ways {...props} />
    <p class="buttons">
      {!free && card.kind !== TRIGGER && <><button type="button" class="small" disabled={index === 0} onClick={() => edit(moved(doc, card, -1))}>Move up</button>
        <button type="button" class="small" disabled={index >= siblings - 1} onClick={() => edit(moved(doc, card, 1))}>Move down</button></>}
      {(free || card.kind !== TRIGGER) && <button type="button" class="small danger" onClick={remove}>Remove</button>}
    </p>
  </>
}

/** Where each port leads: the keyboard's way to connect, and the only one on a small screen. */
function Ways({ doc, card, seen, all, free, edit, aim }: Props) {
  if (!card.ports.length) return <p class="hint">Runs end here.</p>
  const about = portsOf(all, card.kind).about
  const nodes = seen.cards.filter(each => each.kind !== TRIGGER && each.id !== card.id).map(each => [each.id, each.id] as const)
  return <fieldset class="group"><legend>Ways out</legend>{card.ports.map(port => {
    const target = seen.links.find(link => link.source === card.id && link.port === port)?.target ?? ''
    const label = card.ports.length > 1 || port !== 'next' ? `${port} leads to` : 'It leads to'
    return <div key={port}>
      {free ? <Field label={label} value={target} options={[['', 'nothing: the run ends'], ...nodes]} set={chosen => edit(connected(doc, { id: card.id, port }, chosen || null))} />
        : <p class="way-out"><b>{label}</b> {target || 'the end of the run'}</p>}
      <p class="hint">{about[port] && `${words(about[port].split('`').join(''))}. `}<button type="button" class="small" aria-label={`Add here, behind ${port}`} onClick={() => aim({ id: card.id, port })}>Add here</button></p>
    </div>
  })}</fieldset>
}

const OF_SOURCE: Record<string, string[]> = { inbound_webhook: ['contactLookup', 'contactPath', 'dedupePath'], tag_added: ['tag'], event: ['name'], segment_entered: ['segmentId'], segment_left: ['segmentId'], date: ['field', 'offset', 'time', 'timezone', 'graceWindow'], schedule: ['cron', 'rrule', 'segmentId', 'timezone', 'graceWindow'] }
const DEFAULTS = ['firstName', 'lastName', 'timezone', 'locale'] as const

/** What would find a contact in the requests that came, best first. */
function Proposed({ of, id, use }: { of: Kind; id: string; use: (lookup: Json) => void }) {
  const found = useLoaded(async () => (await webhookSchema(of, id)).lookups.slice(0, 4), [of, id])
  if (!found.value?.length) return null
  return <><p class="hint">In what came, a contact would be found by</p><ul class="plain">{found.value.map(({ contactLookup, contactPath, metadataField, share }) => <li key={contactPath + contactLookup}>
    <button type="button" class="small" onClick={() => use({ contactLookup, contactPath, ...(metadataField ? { metadataField } : {}) })}>{contactLookup.replace('_', ' ')} at {contactPath}</button> <span class="soft">{Math.round(share * 100)} %</span></li>)}</ul></>
}

const AGAIN = [['', 'always'], ['once', 'never: once only'], ['not_while_running', 'not while a run of theirs goes on'], ['after', 'after a time']] as const

/** Whether who went through may go through again. */
function Reentry({ value, set, problem }: { value: unknown; set: (reentry: unknown) => void; problem: ReturnType<typeof refusalOf> }) {
  const after = typeof value === 'object' && value !== null ? String((value as Json).after ?? '') : null
  return <>
    <Field label="May a contact go through again?" value={after !== null ? 'after' : value === 'always' || value === undefined || value === null ? '' : String(value)} options={AGAIN}
      set={chosen => set(chosen === 'after' ? { after: 'P7D' } : chosen || undefined)} problem={problem} pointer="/trigger/reentry" />
    {after !== null && <Field label="After" value={after} set={text => set({ after: text })} problem={problem} pointer="/trigger/reentry/after" hint="A duration, such as P7D." />}
  </>
}

function Trigger({ doc, all, findings, edit, secret, setSecret, hasSecret, of, id }: Props) {
  const proposing = { of, id }
  const trigger = doc.trigger
  const source = String(trigger.source ?? 'manual')
  const only = ['source', ...(OF_SOURCE[source] ?? [])].flatMap(name => (name === 'contactPath' && trigger.contactLookup === 'contact_id' ? [name, 'metadataField'] : [name]))
  const set = (next: unknown) => edit({ ...doc, trigger: next as Json }, 'trigger')
  const defaults = (trigger.contactDefaults ?? {}) as Json
  const change = (name: string, value: unknown) => {
    const next = put(defaults, [name], value === '' ? undefined : value)
    set(put(trigger, ['contactDefaults'], Object.keys(next).length ? next : undefined))
  }
  const problem = refusalOf(findings)
  const metadata = Object.entries((defaults.metadata ?? {}) as Json).map(([name, value]) => `${name} = ${typeof value === 'string' ? value : JSON.stringify(value)}`).join('\n')
  return <>
    <Members place={['trigger']} schema={{ ...all.trigger, properties: Object.fromEntries(only.map(name => [name, plain(all.trigger.properties?.[name] ?? {}, all.defs)])) }} value={trigger} set={set} of={{ all, findings, locked: false }} />
    <Reentry value={trigger.reentry} set={reentry => set(put(trigger, ['reentry'], reentry))} problem={problem} />
    {source === 'inbound_webhook' && <>
      <Proposed {...proposing} use={lookup => set({ ...trigger, ...lookup })} />
      <Field label="Signing secret" autocomplete="off" value={secret} set={setSecret} problem={problem} pointer="/trigger/signingSecret" hint={hasSecret ? 'There is one; a new one takes its place when you save.' : 'Senders sign with it. Empty: anybody who knows the URL may post.'} />
      <Check label="Make a contact that is not known yet" value={trigger.createContact === true} set={on => set({ ...trigger, createContact: on })} />
      {trigger.createContact === true && <fieldset class="group"><legend>A new contact begins with</legend>
        <p class="hint">Such as <code>{'{{trigger.data.name}}'}</code>.</p>
        {DEFAULTS.map(name => <Field key={name} label={words(name)} value={typeof defaults[name] === 'string' ? defaults[name] : ''} set={text => change(name, text)} problem={problem} pointer={`/trigger/contactDefaults/${name}`} />)}
        <Typed label="Tags" rows={2} text={Array.isArray(defaults.tags) ? defaults.tags.join('\n') : ''} findings={findings} pointer="/trigger/contactDefaults/tags" hint="One on each line."
          read={text => { const tags = text.split('\n').map(tag => tag.trim()).filter(Boolean); change('tags', tags.length ? tags : undefined) }} />
        <Typed label="Fields of your own" rows={2} text={metadata} findings={findings} pointer="/trigger/contactDefaults/metadata" hint="One on each line: name = value" read={text => {
          const pairs = text.split('\n').filter(line => line.includes('=')).map(line => { const [name = '', ...rest] = line.split('='); return [name.trim(), rest.join('=').trim()] as const }).filter(([name]) => name)
          change('metadata', pairs.length ? Object.fromEntries(pairs) : undefined)
        }} />
      </fieldset>}
    </>}
  </>
}
