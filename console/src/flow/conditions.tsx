// A condition: a comparison, or a combination of conditions.
import { useState } from 'preact/hooks'
import { DAY, halves, whole } from '../days'
import { isObject, parse, tried } from '../exact'
import { OPERATORS } from '../words'
import { useErrors } from '../errors'
import { Length } from '../lengths'
import { TAGS } from '../names'
import { Button, Field, Several } from '../ui'
import { Typed, shown, textOf, typed, type Asked, type Control } from './form'
import { pointer, type Json } from './model'

const WAYS = [
  ['compare', 'a comparison'],
  ['all', 'all of these'],
  ['any', 'any of these'],
  ['not', 'not this'],
] as const
const HINTS: Record<string, string> = {
  in: 'A list, such as "pro", "team"',
  eq: 'Put a number, true or false in quotes if you mean it as text.',
}
export const COMPARISON = { path: '', op: 'eq', value: '' }
const isTimed = (op: string) => op === 'before' || op === 'after'
const OWN = 'contact.createdAt' // the moments of the service: fields of others hold days, too
export const PATHS = 'paths' // the list that proposes them, where there is one
const COMBINED = ['all', 'any', 'not']

/** Whether the form can show it: anything may have been written as JSON. */
export const isShown = (value: unknown): boolean =>
  isObject(value) &&
  [value.all, value.any].every(inner => inner === undefined || (Array.isArray(inner) && inner.every(isShown))) &&
  [value.not, value.match].every(inner => inner == null || isShown(inner))

export function ConditionField(control: Control & { label: string }) {
  const { label, value, set, place } = control,
    isMissing = value == null
  const { marks, below } = useErrors(isMissing ? pointer(place) : undefined)
  if (isMissing)
    return (
      <>
        <p class="buttons">
          <Button
            small
            data-invalid={marks['aria-invalid'] || undefined}
            aria-describedby={marks['aria-describedby']}
            onClick={() => set(COMPARISON)}
          >
            {label}: add condition
          </Button>
        </p>
        {below}
      </>
    )
  return (
    <fieldset class="group">
      <legend>{label}</legend>
      <Condition {...control} />
      <p class="buttons">
        <Button small onClick={() => set(undefined)}>
          Remove condition
        </Button>
      </p>
    </fieldset>
  )
}

export function Condition({ place, value, set, of }: Asked) {
  const condition = (value ?? {}) as Json,
    { questions = {} } = of
  const way = [...COMBINED, ...Object.keys(questions)].find(each => each in condition) ?? 'compare'
  const parts = way === 'not' ? [condition.not] : (condition[way] as unknown[])
  /** What is there is kept inside a combination, or taken out of one if it fits. */
  const become = (next: string) => {
    const inside = COMBINED.includes(way) ? parts : [condition],
      first = (inside[0] ?? {}) as Json
    if (next === 'not') set({ not: first })
    else if (COMBINED.includes(next)) set({ [next]: inside })
    else if (next in questions) set(next in first ? first : questions[next]!.blank)
    else set('path' in first ? first : COMPARISON)
  }
  return (
    <div class="condition">
      <Field
        label="Condition"
        value={way}
        set={become}
        options={[...WAYS, ...Object.entries(questions).map(([key, each]) => [key, each.name] as const)]}
        pointer={pointer(place)}
      />
      {way === 'compare'
        ? (of.compare?.({ place, value: condition, set, of }) ?? (
            <>
              <Field
                label="Path"
                value={textOf(condition.path)}
                set={path => set({ ...condition, path })}
                pointer={pointer([...place, 'path'])}
                placeholder={of.paths ?? 'trigger.data.plan'}
                {...(of.paths ? {} : { list: PATHS })}
              />
              <Comparison
                place={place}
                value={condition}
                set={set}
                list={condition.path === 'contact.tags' ? TAGS : undefined}
              />
            </>
          ))
        : questions[way]
          ? questions[way].show({ place, value: condition, set, of })
          : parts.map((inner, index, all) => (
              <fieldset class="group item" key={index}>
                <legend>{way === 'not' ? 'Not' : `${index + 1} of ${all.length}`}</legend>
                <Condition
                  place={way === 'not' ? [...place, 'not'] : [...place, way, index]}
                  value={inner}
                  of={of}
                  set={next =>
                    set(
                      way === 'not' ? { not: next } : { [way]: all.map((one, here) => (here === index ? next : one)) },
                    )
                  }
                />
                {way !== 'not' && all.length > 1 && (
                  <p class="buttons">
                    <Button
                      class="small danger"
                      onClick={() => set({ [way]: all.filter((_, here) => here !== index) })}
                    >
                      Remove
                    </Button>
                  </p>
                )}
              </fieldset>
            ))}
      {(way === 'all' || way === 'any') && (
        <p class="buttons">
          <Button small onClick={() => set({ [way]: [...parts, COMPARISON] })}>
            Add condition
          </Button>
        </p>
      )}
    </div>
  )
}

/** How something is compared. `list` proposes values; `isText`: what looks like a number is none. */
export interface Compared {
  operators?: readonly string[]
  values?: readonly (readonly [string, string])[]
  list?: string | undefined
  isText?: boolean
}

const listOf = (value: unknown): readonly unknown[] =>
  Array.isArray(value) ? value : value === undefined || value === '' ? [] : [value]

/** What remains of a comparison's value by another operator, or of another field. */
export function fit(op: string, { op: was, value }: Json, { isText = false }: Compared = {}): unknown {
  if (op === '' || op === 'exists') return op ? was !== op || value !== false : (value ?? '')
  const isOther = was === 'exists' || (was === 'within_last' && op !== was) // its value means nothing to this one
  const fits = (one: unknown) =>
    isTimed(op) ? halves(textOf(one), true) !== null : op !== 'within_last' || textOf(one).startsWith('P')
  const kept = (isOther ? [] : listOf(value).filter(fits)).map(one =>
    (isText || op.endsWith('s_with')) && one !== null ? textOf(one) : one,
  )
  return op === 'in' ? kept : kept.length ? kept[0] : ''
}

export function Comparison({
  place,
  value: of,
  set,
  operators = Object.keys(OPERATORS),
  values,
  list,
  isText = false,
}: Omit<Asked, 'of'> & Compared) {
  const comparison = of as Json,
    { value } = comparison,
    op = textOf(comparison.op),
    at = pointer([...place, 'value']),
    all = op === 'in' || !Array.isArray(value) ? listOf(value) : [value]
  const change = (value: unknown) => set({ ...comparison, value }),
    shared = { label: 'Value', pointer: at, set: change, value: textOf(value) }
  const others = all
    .filter(one => !values?.some(([each]) => each === one))
    .map(one => [shown(one), shown(one)] as const) // than are offered
  const isPlain = isText && all.every(one => typeof one === 'string' || (one === null && op !== 'in')) // else it keeps its types
  return (
    <>
      <Field
        label="Operator"
        value={op}
        set={next => set({ ...comparison, op: next, value: fit(next, comparison, { isText }) })}
        options={[['', '–'], ...Object.entries(OPERATORS).filter(([name]) => name === op || operators.includes(name))]}
        pointer={pointer([...place, 'op'])}
      />
      {op === 'exists' ? (
        <Field
          {...shared}
          value={String(value !== false)}
          set={text => change(text === 'true')}
          options={[
            ['true', 'yes'],
            ['false', 'no'],
          ]}
        />
      ) : op === 'within_last' ? (
        <Length {...shared} />
      ) : isTimed(op) ? (
        <Moment {...shared} isOwn={comparison.path === OWN} isBefore={op === 'before'} />
      ) : values && op === 'in' ? (
        <Several
          {...shared}
          options={Object.fromEntries([...values, ...others])}
          value={all.map(shown)}
          set={chosen => change(chosen.map(typed))}
        />
      ) : values ? (
        <Field
          {...shared}
          value={shown(value)}
          options={[['', '–'], ...values, ...others]}
          set={text => change(typed(text))}
        />
      ) : (
        <Typed
          label="Value"
          text={
            op === 'in' && Array.isArray(value)
              ? JSON.stringify(value).slice(1, -1)
              : isPlain
                ? plain(value)
                : shown(value)
          }
          pointer={at}
          {...(list ? { list } : {})}
          read={text => change(op === 'in' ? listed(text, isPlain) : isPlain ? readText(text) : typed(text))}
          hint={
            isPlain && op === 'eq'
              ? value === null
                ? 'Nothing is stored there; put the word in quotes.'
                : ''
              : HINTS[op]
          }
        />
      )}
    </>
  )
}

/** A day and, if it matters, a time of it; what is neither stays as it was typed. */
function Moment({
  value,
  set,
  isOwn,
  isBefore,
  ...rest
}: Parameters<typeof Field>[0] & { isOwn: boolean; isBefore: boolean }) {
  const [held, hold] = useState<{ now: ReturnType<typeof halves>; isBare: boolean } | null>(null) // while the focus is in it: a year is typed digit by digit
  const { now, isBare } = held ?? { now: halves(value, isOwn), isBare: !isOwn || DAY.test(value) }
  const begins = `${isBefore ? 'Before' : isBare ? 'After' : 'From'} 00:00 of that day, ${isBare ? 'in UTC' : 'in your time zone'}.`
  const change = (day: string, time: string) => {
    hold({ now: { day, time }, isBare })
    set(whole(day, time, isBare))
  }
  return (
    <div
      onFocusIn={() => hold({ now, isBare })}
      onFocusOut={event => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) hold(null)
      }}
    >
      {now ? (
        <Field
          {...rest}
          type="date"
          max="9999-12-31"
          value={now.day}
          set={day => change(day, now.time)}
          hint={now.time ? 'In your time zone.' : begins}
          beside={
            <input
              type="time"
              aria-label="Time of day"
              step={now.time.length > 8 ? 0.001 : now.time.length > 5 ? 1 : 60}
              value={now.time}
              onInput={event => change(now.day, event.currentTarget.value)}
            />
          }
        />
      ) : (
        <Field {...rest} value={value} set={set} />
      )}
    </div>
  )
}

/** What is typed for a text: as it is, but null; the word itself is in quotes. */
export const readText = (text: string) => {
  const value = typed(text)
  return value === null || value === 'null' ? value : text
}
const plain = (value: unknown) => (value === 'null' ? shown(value) : textOf(value))
/** What is typed for a list, of texts if it `isPlain`; while it is no JSON, its words as they are. */
export const listed = (text: string, isPlain: boolean) =>
  tried(
    () => (parse(`[${text}]`) as unknown[]).map(one => (isPlain && one !== null ? textOf(one) : one)),
    text
      .split(',')
      .map(one => one.trim())
      .filter(Boolean),
  )
