// A condition: a comparison, or a combination of conditions.
import { useState } from 'preact/hooks'
import { local } from '../days'
import { isObject, parse, tried } from '../exact'
import { OPERATORS } from '../words'
import { useErrors } from '../errors'
import { Length } from '../lengths'
import { Field, Several } from '../ui'
import { Typed, shown, typed, type Asked, type Control } from './form'
import { pointer, type Json } from './model'

const WAYS = [['compare', 'a comparison'], ['all', 'all of these'], ['any', 'any of these'], ['not', 'not this']] as const
const HINTS: Record<string, string> = { in: 'A list, such as "pro", "team"', eq: 'Put a number, true or false in quotes if you mean it as text.' }
const isTimed = (op: string) => op === 'before' || op === 'after', isMoment = (text: string) => /^\d{4}-\d\d-\d\d/.test(text) && !Number.isNaN(Date.parse(text))
export const PATHS = 'paths' // the list that proposes them, where there is one

const COMBINED = ['all', 'any', 'not']

/** Whether the form can show it: anything may have been written as JSON. */
export const isShown = (value: unknown): boolean => isObject(value)
  && [value.all, value.any].every(inner => inner === undefined || (Array.isArray(inner) && inner.every(isShown)))
  && [value.not, value.match].every(inner => inner == null || isShown(inner))

export function ConditionField(control: Control & { label: string }) {
  const { label, value, set, place } = control
  const isMissing = value === undefined || value === null
  const { marks, below } = useErrors(isMissing ? pointer(place) : undefined)
  if (isMissing) return <><p class="buttons"><button type="button" class="small" data-invalid={marks['aria-invalid'] || undefined} aria-describedby={marks['aria-describedby']} onClick={() => set({ path: '', op: 'eq', value: '' })}>{label}: add condition</button></p>{below}</>
  return <fieldset class="group"><legend>{label}</legend><Condition {...control} /><p class="buttons"><button type="button" class="small" onClick={() => set(undefined)}>Remove condition</button></p></fieldset>
}

export function Condition({ place, value, set, of }: Asked) {
  const condition = (value ?? {}) as Json
  const { questions = {} } = of
  const way = [...COMBINED, ...Object.keys(questions)].find(each => each in condition) ?? 'compare'
  /** What is there is kept inside a combination, or taken out of one if it fits. */
  const become = (next: string) => {
    const inside = !COMBINED.includes(way) ? [condition] : way === 'not' ? [condition.not] : condition[way] as unknown[]
    const first = (inside[0] ?? {}) as Json
    if (next === 'not') set({ not: first })
    else if (COMBINED.includes(next)) set({ [next]: inside })
    else if (next in questions) set(next in first ? first : questions[next]!.blank)
    else set('path' in first ? first : { path: '', op: 'eq', value: '' })
  }
  return <div class="condition">
    <Field label="Condition" value={way} set={become} options={[...WAYS, ...Object.entries(questions).map(([key, each]) => [key, each.name] as const)]} pointer={pointer(place)} />
    {way === 'compare' ? of.compare?.({ place, value: condition, set, of }) ?? <>
      <Field label="Path" value={String(condition.path ?? '')} set={path => set({ ...condition, path })} pointer={pointer([...place, 'path'])} placeholder={of.paths ?? 'trigger.data.plan'} {...(of.paths ? {} : { list: PATHS })} />
      <Comparison place={place} value={condition} set={set} />
    </> : questions[way] ? questions[way].show({ place, value: condition, set, of }) : (way === 'not' ? [condition.not] : condition[way] as unknown[]).map((inner, index, all) => <fieldset class="group item" key={index}>
      <legend>{way === 'not' ? 'Not' : `${index + 1} of ${all.length}`}</legend>
      <Condition place={way === 'not' ? [...place, 'not'] : [...place, way, index]} value={inner} of={of}
        set={next => set(way === 'not' ? { not: next } : { [way]: all.map((one, here) => (here === index ? next : one)) })} />
      {way !== 'not' && all.length > 1 && <p class="buttons"><button type="button" class="small danger" onClick={() => set({ [way]: all.filter((_, here) => here !== index) })}>Remove</button></p>}
    </fieldset>)}
    {(way === 'all' || way === 'any') && <p class="buttons"><button type="button" class="small" onClick={() => set({ [way]: [...condition[way] as unknown[], { path: '', op: 'eq', value: '' }] })}>Add condition</button></p>}
  </div>
}

/** How something is compared: the operators that fit it, and the values that there are, or the list that proposes some; `isText`: what looks like a number is none. */
export interface Compared { operators?: readonly string[]; values?: readonly (readonly [string, string])[]; list?: string | undefined; isText?: boolean }

export function Comparison({ place, value: of, set, operators = Object.keys(OPERATORS), values, list, isText = false }: Omit<Asked, 'of'> & Compared) {
  const { op: kept, value } = of as Json, op = String(kept ?? ''), at = pointer([...place, 'value'])
  const change = (changes: Json) => set({ ...of as Json, ...changes, ...(changes.op === 'exists' ? { value: true } : {}) })
  const shared = { label: 'Value', pointer: at, set: (value: string) => change({ value }), value: typeof value === 'string' ? value : shown(value ?? '') }
  return <>
    <Field label="Operator" value={op} set={next => change({ op: next, ...((isTimed(next) && !isMoment(shared.value)) || (next === 'within_last' && !shared.value.startsWith('P')) ? { value: '' } : {}) })} options={[['', '–'], ...Object.entries(OPERATORS).filter(([name]) => name === op || operators.includes(name))]} pointer={pointer([...place, 'op'])} />
    {op === 'exists' ? <Field {...shared} value={String(value !== false)} set={text => change({ value: text === 'true' })} options={[['true', 'yes'], ['false', 'no']]} />
      : op === 'within_last' ? <Length {...shared} /> : isTimed(op) ? <Moment {...shared} />
      : values && op === 'in' ? <Several {...shared} options={Object.fromEntries(values)} chosen={Array.isArray(value) ? value : []} set={value => change({ value })} />
      : values ? <Field {...shared} options={[['', '–'], ...values, ...(!value || values.some(([one]) => one === value) ? [] : [[shared.value, shared.value] as const])]} />
      : <Typed label="Value" text={op === 'in' && Array.isArray(value) ? JSON.stringify(value).slice(1, -1) : isText ? shared.value : shown(value)} pointer={at} {...(list ? { list } : {})}
        read={text => change({ value: op === 'in' ? listed(text) : isText ? text : typed(text) })} hint={isText && op === 'eq' ? '' : HINTS[op]} />}
  </>
}

/** A moment: the day that begins then where one is, or to the minute; what is no moment stays as it was typed. */
function Moment({ value, set, ...rest }: Omit<Parameters<typeof Field>[0], 'type'>) {
  const moment = isMoment(value) ? local(value) : ''
  const [type] = useState<'text' | 'date' | 'datetime-local'>(value && !moment ? 'text' : /^$|T00:00$/.test(moment) ? 'date' : 'datetime-local') // while a year is typed, too
  return <Typed {...rest} type={type} text={type === 'text' ? value : type === 'date' ? moment.slice(0, 10) : moment} hint={type === 'text' ? '' : 'In your time zone.'}
    read={typed => set(type === 'text' || !typed ? typed : new Date(type === 'date' ? `${typed}T00:00` : typed).toISOString())} />
}

/** What is typed for a list; while it is no JSON, its words as they are. */
const listed = (text: string) => tried(() => parse(`[${text}]`) as unknown[], text.split(',').map(one => one.trim()).filter(Boolean))
