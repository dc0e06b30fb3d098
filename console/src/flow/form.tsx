// Side forms, made of the JSON Schema of a kind: one control for each member, with what the check found at it.
import { useEffect, useRef, useState } from 'preact/hooks'
import type { Listed } from '../data'
import { EVENTS, FIELDS, TAGS, useFlowChoice, useSegments, useTemplates, useTopics, type Kind } from '../names'
import { useErrors } from '../errors'
import { Button, Check, Field, Link, Several } from '../ui'
import { Length } from '../lengths'
import { ConditionField } from './conditions'
import { flaw, isObject, parse, pretty, same, textOf, tried } from '../exact'
import { MASK } from './kept'
import { isCondition, plain, type Kinds, type Schema } from './kinds'
import { pointer, put, type Json, type Key } from './model'

export { textOf }
export interface Finding {
  severity: string
  code: string
  pointer: string
  message: string
}
/** What every control gets: its place in the definition, what was found there, and what changes it. */
export interface Control {
  place: Key[]
  schema: Schema
  value: unknown
  set: (value: unknown) => void
  of: Surroundings
}
/** What a condition gets. `compare` asks for a comparison in its own way; `questions` are asked beside comparisons, each by the member that only it has. */
export interface Asked extends Pick<Control, 'place' | 'value' | 'set'> {
  of: Around
}
export interface Around {
  paths?: string
  compare?: (asked: Asked) => preact.JSX.Element
  questions?: Readonly<Record<string, Question>>
}
export interface Question {
  name: string
  blank: Json
  show: (asked: Asked) => preact.JSX.Element
}
export interface Surroundings extends Around {
  findings: readonly Finding[]
  all: Kinds
  channel?: string
}

/** `timeoutMs` as people say it. */
export function words(name: string): string {
  const spaced = name
    .replace(/([A-Z])/g, ' $1')
    .toLowerCase()
    .replace(/ id$/, '')
    .replace(/ ms$/, ' in ms')
  return spaced.charAt(0).toUpperCase() + spaced.slice(1)
}

/** A description, whose code stands between backquotes. */
export const said = (text: string) =>
  text.split('`').map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))

/** The description of a member, and the warnings about it, or about its place alone. */
function Hint({ schema, at, of, isWhole = true }: { schema: Schema; at: string; of: Surroundings; isWhole?: boolean }) {
  const warned = of.findings.filter(
    each => each.severity === 'warning' && (isWhole ? `${each.pointer}/`.startsWith(`${at}/`) : each.pointer === at),
  )
  return (
    <>
      {said(schema.description ?? '')}
      {warned.map(each => (
        <span key={each.code + each.pointer} class="odd">
          {' '}
          {each.message}
        </span>
      ))}
    </>
  )
}

const LENGTHS = new Set(['duration', 'timeout', 'after', 'window', 'graceWindow'])
/** The lists that propose what is in use, by name or pointer. */
const PROPOSED: Record<string, string> = { tag: TAGS, event: EVENTS, '/trigger/name': EVENTS, metadataField: FIELDS }
/** What else than an address a contact may begin with. */
export const DEFAULTS = ['firstName', 'lastName', 'timezone', 'locale'] as const
export const SETTABLE = 'settable' // the list that proposes what a step can set
const ROWS: Record<string, number> = { html: 10, text: 6, reason: 2, detail: 2 }

/** All members of an object, in the order of its schema. */
export function Members({ place, schema, value, set, of, only }: Control & { only?: readonly string[] }) {
  const members = (value ?? {}) as Json
  const shown = Object.entries(schema.properties ?? {}).filter(([name]) => !only || only.includes(name))
  const inner = { ...of, ...(typeof members.channel === 'string' ? { channel: members.channel } : {}) }
  const change = (name: string, next: unknown) => set(put(members, [name], next))
  return (
    <>
      {shown.map(([name, raw]) => (
        <Member
          key={name}
          name={name}
          raw={raw}
          place={[...place, name]}
          value={members[name]}
          set={next => change(name, next)}
          of={inner}
        />
      ))}
    </>
  )
}

function Member({ name, raw, place, value, set, of }: Omit<Control, 'schema'> & { name: string; raw: Schema }) {
  const schema = plain(raw, of.all.defs)
  const at = pointer(place)
  const control = { place, schema, value, set, of }
  const label = words(name)
  const shared = { label, pointer: at, hint: <Hint schema={schema} at={at} of={of} /> }
  if (isCondition(schema)) return <ConditionField {...control} label={label} />
  if (name in PICKED) return <Picked {...control} name={name} label={label} />
  if (name === 'content') return <Content {...control} />
  if (LENGTHS.has(name) && (typeof value === 'string' || value == null))
    return <Length {...shared} value={value ?? ''} set={text => set(text || undefined)} />
  if (schema.enum) {
    const none = value === undefined || value === '' || value === null
    const options = schema.enum.map(one => [String(one), String(one).replaceAll('_', ' ')] as const)
    return (
      <Field
        {...shared}
        value={textOf(value ?? '')}
        set={text => set(text || undefined)}
        options={none || !raw.enum ? [['', '–'], ...options] : options}
      />
    )
  }
  if (schema.type === 'boolean') return <Check label={label} value={value === true} set={set} pointer={at} />
  if (schema.type === 'integer' || schema.type === 'number')
    return (
      <Typed
        {...shared}
        text={textOf(value ?? '')}
        read={text => set(text.trim() ? (Number.isNaN(Number(text)) ? text : typed(text)) : undefined)}
      />
    )
  if (schema.type === 'array' && schema.items?.enum)
    return (
      <Several
        {...shared}
        options={Object.fromEntries(schema.items.enum.map(one => [String(one), String(one)]))}
        value={Array.isArray(value) ? value : []}
        set={chosen => set(chosen.length ? chosen : undefined)}
      />
    )
  if (schema.type === 'array' && schema.items?.properties) return <Items {...control} name={name} label={label} />
  if (schema.type === 'object') return <Pairs {...control} label={label} />
  if (schema.type === 'string')
    return (
      <Field
        {...shared}
        {...(ROWS[name] ? { rows: ROWS[name] } : {})}
        list={PROPOSED[name] ?? PROPOSED[at]}
        value={textOf(value)}
        set={text => set(text === '' ? undefined : text)}
      />
    )
  return <JsonField {...control} label={label} />
}

/** A group of controls, with what was found at its place, and within it where no control shows it. */
function Group({
  label,
  schema,
  place,
  of,
  children,
  isWhole = false,
}: {
  label: string
  schema: Schema
  place: Key[]
  of: Surroundings
  children: preact.ComponentChildren
  isWhole?: boolean
}) {
  const at = pointer(place)
  const { marks, below } = useErrors(at)
  return (
    <fieldset
      class="group"
      tabIndex={-1}
      data-invalid={marks['aria-invalid'] || undefined}
      aria-describedby={marks['aria-describedby']}
    >
      <legend>{label}</legend>
      <p class="hint">
        <Hint schema={schema} at={at} of={of} isWhole={isWhole} />
      </p>
      {children}
      {below}
    </fieldset>
  )
}

/** Cases, conditions or variants: each leads on by a port of its own. */
function Items({ place, schema, value, set, of, label, name }: Control & { label: string; name: string }) {
  const items = Array.isArray(value) ? (value as Json[]) : []
  const one = name.replace(/s$/, '')
  const shift = (index: number, by: number) => set(items.toSpliced(index, 1).toSpliced(index + by, 0, items[index]!))
  return (
    <Group label={label} schema={schema} place={place} of={of}>
      {items.map((item, index) => (
        <Group key={index} label={`${words(one)} ${index + 1}`} schema={{}} place={[...place, index]} of={of}>
          <Members
            place={[...place, index]}
            schema={schema.items!}
            value={item}
            set={next => set(items.map((old, at) => (at === index ? next : old)))}
            of={of}
          />
          <p class="buttons">
            <Button small disabled={index === 0} onClick={() => shift(index, -1)}>
              Up
            </Button>
            <Button small disabled={index === items.length - 1} onClick={() => shift(index, 1)}>
              Down
            </Button>
            <Button class="small danger" onClick={() => set(items.filter((_, at) => at !== index))}>
              Remove
            </Button>
          </p>
        </Group>
      ))}
      <p class="buttons">
        <Button small onClick={() => set([...items, name === 'variants' ? { weight: 50 } : {}])}>
          Add {one}
        </Button>
      </p>
    </Group>
  )
}

/** A value as it is typed: a number, true, false or null where the text says so, else the text. */
export const typed = (text: string): unknown =>
  tried(() => {
    const value = parse(text)
    return isObject(value) ? text : value
  }, text)
export const shown = (value: unknown) =>
  typeof value === 'string' ? (typed(value) === value ? value : JSON.stringify(value)) : textOf(value)

/** A row: its name as it is typed, its own `key`, by which it is kept, and whether it was left without a name. */
type Pair = { name: string; text: string; key: string; isLost?: boolean }

/** An object whose names its author chooses: headers, fields to set, variables, data. A name counts once left. */
function Pairs({ place, schema, value, set, of, label }: Control & { label: string }) {
  const texts = typeof schema.additionalProperties === 'object' && schema.additionalProperties.type === 'string'
  const stored = isObject(value) ? value : {}
  const [typing, setTyping] = useState<{ of: unknown; rows: Pair[] } | null>(null)
  const leave = useRef((_: boolean) => {}) // as of what is shown: a row that is removed is left by that
  const isMasked = (key: string) => stored[key] === MASK
  /** Rows that are typed stay, also when the answer of a save has the mask for what was typed. */
  const own =
    typing && JSON.stringify(typing.of, (key, one) => (isMasked(key) ? MASK : one)) === JSON.stringify(value)
      ? typing.rows.map(each => (isMasked(each.key) ? { ...each, text: MASK } : each))
      : null
  const isDeep =
    (value != null && !isObject(value)) || Object.values(stored).some(one => isObject(one) || Array.isArray(one))
  if (isDeep && !own) return <JsonField {...{ place, schema, value, set, of, label }} />
  const show = (key: string) => (texts ? textOf(stored[key]) : shown(stored[key]))
  const isStored = (key: string) => key !== '' && Object.hasOwn(stored, key)
  const rows: Pair[] = own ?? Object.keys(stored).map(name => ({ name, text: show(name), key: name }))
  /** A name alone is none yet, until its row is left; one that is taken, or was cleared, leaves the row as it was. */
  const change = (before: Pair[], isLeft = false) => {
    const keys = new Set(before.map(each => each.key))
    const rows = before.map(each => {
      const key = each.name.trim()
      if (!key) return { ...each, name: each.key, isLost: each.isLost || (isLeft && !!each.text) }
      if (keys.has(key)) return each
      keys.delete(each.key)
      keys.add(key)
      return { ...each, key }
    })
    const kept = rows
      .filter(({ key, text }) => key && (text || isLeft || isStored(key)))
      .map(({ key, text }) => [key, isStored(key) && show(key) === text ? stored[key] : texts ? text : typed(text)])
    const next = kept.length ? Object.fromEntries(kept) : undefined
    setTyping({ of: next, rows })
    if (!same(next, value)) set(next)
  }
  leave.current = isLeft => change(rows, isLeft)
  const put = (index: number, changes: Partial<Pair>) => rows.with(index, { ...rows[index]!, ...changes })
  return (
    <Group label={label} schema={schema} place={place} of={of} isWhole>
      {rows.map(({ name, text, key, isLost }, index) => (
        <div
          class="pairs"
          key={index}
          onFocusOut={({ target, currentTarget, relatedTarget }) => {
            if (target !== document.activeElement)
              // else it is the window that was left
              leave.current(!currentTarget.contains(relatedTarget as Node | null))
          }}
        >
          <Box
            label={`${label}: ${isStored(key) ? `name ${index + 1}` : 'new name'}`}
            list={place.at(-1) === 'set' ? SETTABLE : undefined}
            value={name}
            placeholder="name"
            wrong={
              key !== name.trim() && rows.some(one => one.key && one.key === name.trim())
                ? 'Another one has this name.'
                : isLost && text && !name.trim()
                  ? 'It needs a name.'
                  : ''
            }
            set={name => setTyping({ of: value, rows: put(index, { name }) })}
          />
          <Box
            label={`${label}: ${isStored(key) ? key : 'new value'}`}
            value={text}
            placeholder="value"
            pointer={pointer([...place, key])}
            set={text => change(put(index, { text }))}
          />
          <Button small aria-label={`Remove ${name || 'this one'}`} onClick={() => change(rows.toSpliced(index, 1))}>
            ✕
          </Button>
        </div>
      ))}
      <p class="buttons">
        <Button small onClick={() => setTyping({ of: value, rows: [...rows, { name: '', text: '', key: '' }] })}>
          Add one
        </Button>
      </p>
    </Group>
  )
}

function Box({
  label,
  set,
  pointer: at,
  wrong,
  ...rest
}: Pick<Parameters<typeof Field>[0], 'label' | 'value' | 'set' | 'pointer' | 'wrong' | 'list' | 'placeholder'>) {
  const { marks, below } = useErrors(at, wrong)
  return (
    <>
      <input
        {...({ ...rest, ...marks } as object)}
        aria-label={label}
        onInput={event => set(event.currentTarget.value)}
      />
      {below}
    </>
  )
}

/** A field whose text is read as something else: what is typed stands while the focus is in it, or while it cannot be read. */
export function Typed({
  text,
  read,
  ...rest
}: Omit<Parameters<typeof Field>[0], 'value' | 'set' | 'wrong'> & {
  text: string
  read: (text: string) => string | undefined | void
}) {
  const [draft, setDraft] = useState<string | null>(null)
  const [wrong, setWrong] = useState('')
  return (
    <div
      onFocusOut={() => {
        if (!wrong) setDraft(null)
      }}
    >
      <Field
        {...rest}
        value={draft ?? text}
        wrong={wrong}
        set={next => {
          setDraft(next)
          setWrong(read(next) ?? '')
        }}
      />
    </div>
  )
}

/** Anything else, as JSON; while it is none, the definition has the text, of which the check says what is wrong. */
export function JsonField({ place, schema, value, set, of, label }: Control & { label: string }) {
  const at = pointer(place)
  const takesText = schema.type === undefined || (Array.isArray(schema.type) && schema.type.includes('string'))
  const text = value === undefined ? '' : typeof value === 'string' ? value : pretty(value)
  return (
    <Typed
      label={`${label} (JSON)`}
      rows={5}
      text={text}
      pointer={at}
      hint={<Hint schema={schema} at={at} of={of} />}
      read={next => {
        const wrong = next.trim() && flaw(next)
        set(wrong ? next : next.trim() ? parse(next) : undefined)
        return takesText ? '' : wrong
      }}
    />
  )
}

/** What a step says itself instead of a template; its parts are those of the channel. */
function Content({ place, schema, value, set, of }: Control) {
  const channel = of.channel ?? ''
  const own = of.all.defs[`${channel.charAt(0).toUpperCase()}${channel.slice(1)}InlineContent`] ?? schema
  if (value == null)
    return (
      <p class="buttons">
        <Button small onClick={() => set({})}>
          Write content instead of a template
        </Button>
      </p>
    )
  return (
    <Group label="Content" schema={{}} place={place} of={of}>
      <Members place={place} schema={own} value={value} set={set} of={of} />
      <p class="buttons">
        <Button small onClick={() => set(undefined)}>
          Use a template instead
        </Button>
      </p>
    </Group>
  )
}

const useFlowsOf = (kind: Kind, chosen: string) => {
  const all = useFlowChoice(chosen)
  return { ...all, rows: all.rows && all.rows.filter(each => each.kind === kind) }
}

type Choosable = { id: string; name: string; channel?: string; channels?: readonly string[]; state?: string }
/** Where they are, whether each has a page there, and all that there are. */
const PICKED: Record<string, readonly [string, boolean, (chosen: string) => Listed<Choosable>]> = {
  templateId: ['/templates', true, useTemplates],
  segmentId: ['/segments', true, useSegments],
  topicId: ['/settings/topics', false, useTopics],
  workflowId: ['/flows/workflows', true, chosen => useFlowsOf('workflows', chosen)],
  automationId: ['/flows/automations', true, chosen => useFlowsOf('automations', chosen)],
}

function Picked({ place, schema, value, set, of, name, label }: Control & { name: string; label: string }) {
  const [pages, isPaged, useAll] = PICKED[name]!
  const current = typeof value === 'string' ? value : ''
  const all = useAll(current)
  useEffect(() => {
    const look = () => void all.reload() // whoever comes back from the other tab may have made one there
    addEventListener('focus', look)
    return () => removeEventListener('focus', look)
  }, [])
  const fits = ({ channel, channels }: Choosable) =>
    !of.channel || ((channel ?? of.channel) === of.channel && (channels?.includes(of.channel) ?? true))
  const options = (all.rows ?? [])
    .filter(fits)
    .map(each => [each.id, each.state ? `${each.name} (${each.state.toLowerCase()})` : each.name] as const)
  const at = pointer(place)
  const isListed = !current || options.some(([id]) => id === current)
  return (
    <Field
      label={label}
      value={current}
      set={text => set(text || undefined)}
      pointer={at}
      growing={all}
      options={[['', '–'], ...(isListed ? [] : [[current, current] as const]), ...options]}
      hint={
        <>
          <Hint schema={schema} at={at} of={of} />{' '}
          {!isPaged ? (
            <Link to={pages}>See all</Link>
          ) : current ? (
            <Link target="_blank" to={`${pages}/${current}`}>
              View in a new tab
            </Link>
          ) : (
            !pages.startsWith('/flows/') && (
              <Link target="_blank" to={`${pages}/new${of.channel ? `?channel=${of.channel}` : ''}`}>
                Create one in a new tab
              </Link>
            )
          )}
        </>
      }
    />
  )
}
