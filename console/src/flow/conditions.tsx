// A condition: a comparison, or a combination of conditions.
import { isObject, parse } from '../exact'
import { OPERATORS } from '../words'
import { useErrors } from '../errors'
import { Length } from '../lengths'
import { Field } from '../ui'
import { Typed, shown, typed, type Asked, type Control } from './form'
import { pointer, type Json } from './model'

const WAYS = [['compare', 'a comparison'], ['all', 'all of these'], ['any', 'any of these'], ['not', 'not this']] as const
const HINTS: Record<string, string> = { in: 'A list, such as "pro", "team"', before: 'A time, such as 2026-03-01T09:00:00Z', after: 'A time, such as 2026-03-01T09:00:00Z', eq: 'Put a number, true or false in quotes if you mean it as text.' }

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
  const at = (name: string) => pointer([...place, name])
  const change = (changes: Json) => {
    const next = { ...condition, ...changes }
    if (changes.op === 'exists') next.value = true
    set(next)
  }
  const op = String(condition.op ?? '')
  return <div class="condition">
    <Field label="Condition" value={way} set={become} options={[...WAYS, ...Object.entries(questions).map(([key, each]) => [key, each.name] as const)]} pointer={pointer(place)} />
    {way === 'compare' ? <>
      <Field label="Path" value={String(condition.path ?? '')} set={path => change({ path })} pointer={at('path')} placeholder={of.paths ?? 'trigger.data.plan'} />
      <Field label="Operator" value={op} set={next => change({ op: next })} options={[['', '–'], ...Object.entries(OPERATORS)]} pointer={at('op')} />
      {op === 'exists' ? <Field label="Value" value={String(condition.value !== false)} set={text => change({ value: text === 'true' })} options={[['true', 'yes'], ['false', 'no']]} pointer={at('value')} />
        : op === 'within_last' ? <Length label="Value" value={String(condition.value ?? '')} set={value => change({ value })} pointer={at('value')} />
        : <Typed label="Value" text={op === 'in' && Array.isArray(condition.value) ? JSON.stringify(condition.value).slice(1, -1) : shown(condition.value)} pointer={at('value')}
          read={text => change({ value: op === 'in' ? listed(text) : typed(text) })} hint={HINTS[op]} />}
    </> : questions[way] ? questions[way].show({ place, value: condition, set, of }) : (way === 'not' ? [condition.not] : condition[way] as unknown[]).map((inner, index, all) => <fieldset class="group item" key={index}>
      <legend>{way === 'not' ? 'Not' : `${index + 1} of ${all.length}`}</legend>
      <Condition place={way === 'not' ? [...place, 'not'] : [...place, way, index]} value={inner} of={of}
        set={next => set(way === 'not' ? { not: next } : { [way]: all.map((one, here) => (here === index ? next : one)) })} />
      {way !== 'not' && all.length > 1 && <p class="buttons"><button type="button" class="small danger" onClick={() => set({ [way]: all.filter((_, here) => here !== index) })}>Remove</button></p>}
    </fieldset>)}
    {(way === 'all' || way === 'any') && <p class="buttons"><button type="button" class="small" onClick={() => set({ [way]: [...condition[way] as unknown[], { path: '', op: 'eq', value: '' }] })}>Add condition</button></p>}
  </div>
}

/** What is typed for a list; while it is no JSON, its words as they are. */
function listed(text: string): unknown[] {
  try { return parse(`[${text}]`) as unknown[] } catch { return text.split(',').map(one => one.trim()).filter(Boolean) }
}
