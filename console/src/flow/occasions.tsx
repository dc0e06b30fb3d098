// When a run starts by the clock: at a date that a contact has, or by a schedule.
import { useState } from 'preact/hooks'
import { Length } from '../lengths'
import { FIELDS } from '../names'
import { Check, Field, Several, Zones, ZONES } from '../ui'
import { DAYS } from '../words'
import { put, type Json } from './model'

interface Asked {
  value: Json
  set: (trigger: Json) => void
}

const text = (value: unknown) => (typeof value === 'string' ? value : '')
/** A member; "" takes it away. */
const changing =
  ({ value, set }: Asked) =>
  (name: string, to: string) =>
    set(put(value, [name], to || undefined))

const OWN = 'metadata.'
const DATES = [
  ['', '–'],
  ['createdAt', 'when the contact was created'],
  [OWN, 'a custom field'],
] as const
const SIDES = [
  ['', 'on it'],
  ['-', 'before it'],
  ['+', 'after it'],
] as const

export function DateOf(asked: Asked) {
  const { value } = asked
  const change = changing(asked)
  const field = text(value.field),
    offset = text(value.offset)
  const isOwn = field.startsWith(OWN)
  const side = value.offset === undefined ? '' : offset.startsWith('-') ? '-' : '+'
  const by = offset.replace('-', '')
  const shift = (to: string, length: string) =>
    asked.set(put(value, ['offset'], to === '' ? undefined : to === '-' ? `-${length}` : length))
  return (
    <>
      <Field
        label="Date"
        value={isOwn ? OWN : field}
        set={to => change('field', to)}
        options={DATES}
        {...(isOwn ? {} : { pointer: '/trigger/field' })}
      />
      {isOwn && (
        <Field
          label="Field name"
          value={field.slice(OWN.length)}
          set={to => change('field', OWN + to)}
          pointer="/trigger/field"
          list={FIELDS}
          hint="Its value is a date, such as 2026-11-02, or a time."
        />
      )}
      <Field label="When" value={side} set={to => shift(to, by || 'P1D')} options={SIDES} />
      {side && <Length label="How long" value={by} set={to => shift(side, to)} pointer="/trigger/offset" />}
      <Field
        label="At"
        type="time"
        value={text(value.time)}
        set={to => change('time', to)}
        pointer="/trigger/time"
        hint="Empty: the value’s time, or midnight."
      />
      <Check
        label="Every year"
        value={value.repeat === 'yearly'}
        set={on => change('repeat', on ? 'yearly' : '')}
        pointer="/trigger/repeat"
      />
      {value.repeat === 'yearly' && (
        <p class="hint">
          First in the date’s own year; a 29 February on the 28th where there is none. A date that is corrected may come
          twice in a year, unless “May a contact go through again?” says otherwise.
        </p>
      )}
      <Zone {...asked} ofContact />
    </>
  )
}

const WORKSPACE = 'workspace',
  CONTACT = 'contact',
  OTHER = 'other'

/** Whose clock it goes by. */
function Zone({ ofContact = false, ...asked }: Asked & { ofContact?: boolean }) {
  const change = changing(asked)
  const zone = text(asked.value.timezone) || WORKSPACE
  const isNamed = zone !== WORKSPACE && zone !== CONTACT
  const options = [
    [WORKSPACE, 'the workspace’s'],
    ...(ofContact ? ([[CONTACT, 'the contact’s']] as const) : []),
    [OTHER, 'another'],
  ] as const
  return (
    <>
      <Field
        label="In whose time zone"
        value={isNamed ? OTHER : zone}
        options={options}
        set={to =>
          change(
            'timezone',
            to === OTHER ? Intl.DateTimeFormat().resolvedOptions().timeZone : to === WORKSPACE ? '' : to,
          )
        }
      />
      {isNamed && (
        <>
          <Zones />
          <Field
            label="Time zone"
            list={ZONES}
            value={zone}
            set={to => change('timezone', to || OTHER)}
            pointer="/trigger/timezone"
            placeholder="Europe/Lisbon"
          />
        </>
      )}
    </>
  )
}

// --- schedules ---

const SIMPLE =
  /^(\d{1,2}) (\d{1,2}) (\*|\d{1,2}) \* (\*|(?:mon|tue|wed|thu|fri|sat|sun)(?:,(?:mon|tue|wed|thu|fri|sat|sun))*|)$/
const WAYS = [
  ['', '–'],
  ['day', 'every day'],
  ['week', 'on days of the week'],
  ['month', 'on a day of the month'],
  ['cron', 'by cron expression'],
  ['rrule', 'by recurrence rule'],
] as const

/** What a line of cron says, if the form can say it: the time, and on which days; on none as long as none is chosen, which the check refuses. */
export function timeOf(cron: string) {
  const [, minute, hour, date = '*', days = '*'] = SIMPLE.exec(cron) ?? []
  if (minute === undefined || hour === undefined || (date !== '*' && days !== '*')) return null
  return {
    time: `${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`,
    date,
    days,
    way: date !== '*' ? 'month' : days !== '*' ? 'week' : 'day',
  }
}

export function cronOf(time: string, date: string, days: string): string {
  const [hour = '9', minute = '0'] = time.split(':')
  return `${Number(minute)} ${Number(hour)} ${date} * ${days}`
}

export function Schedule(asked: Asked) {
  const { value, set } = asked
  const { cron, rrule, ...rest } = value
  const [isLine, setLine] = useState(false)
  const simple = isLine ? null : timeOf(text(cron))
  const way = rrule !== undefined ? 'rrule' : cron === undefined ? '' : (simple?.way ?? 'cron')
  const by = (next: string) => set({ ...rest, cron: next })
  const time = simple?.time ?? '09:00'
  const begin: Record<string, () => void> = {
    '': () => set(rest),
    day: () => by(cronOf(time, '*', '*')),
    week: () => by(cronOf(time, '*', 'mon')),
    month: () => by(cronOf(time, '1', '*')),
    cron: () => by(text(cron) || cronOf(time, '*', '*')),
    rrule: () => set({ ...rest, rrule: 'FREQ=WEEKLY;BYDAY=MO;BYHOUR=9' }),
  }
  return (
    <>
      <Field
        label="When"
        value={way}
        set={to => {
          setLine(to === 'cron')
          begin[to]?.()
        }}
        options={WAYS}
        {...(way === '' ? { pointer: '/trigger/rrule' } : {})}
      />
      {simple && way === 'week' && (
        <Several
          label="Days of the week"
          hint={simple.days ? '' : 'Choose at least one.'}
          options={DAYS}
          value={simple.days.split(',')}
          set={days => by(cronOf(time, '*', days.join()))}
          pointer="/trigger/cron"
        />
      )}
      {simple && way === 'month' && (
        <Field
          label="Day of the month"
          type="number"
          min="1"
          max="31"
          value={simple.date}
          set={to => by(cronOf(time, to || '1', '*'))}
          pointer="/trigger/cron"
        />
      )}
      {simple ? (
        <Field
          label="At"
          type="time"
          value={time}
          set={to => to && by(cronOf(to, simple.date, simple.days))}
          pointer={way === 'day' ? '/trigger/cron' : undefined}
        />
      ) : way === 'cron' ? (
        <Field
          label="Cron"
          value={text(cron)}
          set={by}
          pointer="/trigger/cron"
          hint="Minute, hour, day, month and weekday; at most once an hour."
        />
      ) : (
        way === 'rrule' && (
          <Field
            label="Recurrence rule"
            value={text(rrule)}
            set={to => set({ ...rest, rrule: to })}
            pointer="/trigger/rrule"
            hint="RFC 5545, such as FREQ=WEEKLY;BYDAY=MO;BYHOUR=9; at most once an hour."
          />
        )
      )}
      <Zone {...asked} />
    </>
  )
}
