// Days as filters of a list: in the address as days, asked for as the moments at which they begin and end where the reader is.
import { tried } from './exact'
import { narrow, useLocation } from './router'

const LABELS = { createdAfter: 'Since', createdBefore: 'Until', updatedAfter: 'Updated since' } as const
type Name = keyof typeof LABELS
export const CREATED: readonly Name[] = ['createdAfter', 'createdBefore']
export const CHANGED: readonly Name[] = [...CREATED, 'updatedAfter']

/** The moment at which a day begins, so many days later; none for what is no day. */
export function begins(day: string, later = 0): Date | null {
  const [year, month, date] = day.split('-').map(Number)
  const found = new Date(year ?? NaN, (month ?? NaN) - 1, (date ?? NaN) + later)
  return Number.isNaN(found.getTime()) ? null : found
}

const zoned = (moment: Date) => new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString()

/** A moment as an input has it, in the viewer's zone, to the minute. */
export const local = (at: string | number | null): string =>
  at ? tried(() => zoned(new Date(at)).slice(0, 16), '') : ''

export const DAY = /^\d{4}-\d\d-\d\d$/
const MOMENT = /^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/

/** A moment as two inputs have it, in the viewer's zone; a day, which is one in UTC, as it is; null for what is neither. `isDay`: where a day begins there, the time is left out. */
export const halves = (value: string, isDay: boolean) =>
  tried(() => {
    const at = new Date(value || 0),
      [day, time] = (MOMENT.test(value) ? zoned(at).split('T') : [value, '']) as [string, string]
    if (time ? !DAY.test(day) : value && !(DAY.test(value) && at.toISOString().startsWith(value))) return null
    return {
      day,
      time:
        isDay && time && at.getTime() === new Date(`${day}T00:00`).getTime()
          ? ''
          : time.replace(/(?:(?::00)?\.000)?Z$/, ''),
    }
  }, null)

/** The moment of both; of a day alone, the day itself if `isBare`. What is none stays for the check to say so. */
export const whole = (day: string, time: string, isBare: boolean): string =>
  !day || (isBare && !time) ? day : tried(() => new Date(`${day}T${time || '00:00'}`).toISOString(), day)

/** What the API is asked for. The last day is one of them, and so is the first moment of the first. */
export function days(query: URLSearchParams): Partial<Record<Name, string>> {
  const bounds = Object.keys(LABELS).map(
    name => [name, begins(query.get(name) ?? '', name === 'createdBefore' ? 1 : 0)] as const,
  )
  return Object.fromEntries(
    bounds.flatMap(([name, at]) =>
      at ? [[name, new Date(at.getTime() - (name === 'createdBefore' ? 0 : 1)).toISOString()]] : [],
    ),
  )
}

export function Days({ of = CREATED }: { of?: readonly Name[] }) {
  const { query } = useLocation()
  return (
    <>
      {of.map(name => (
        <label key={name}>
          {LABELS[name]}
          <input
            type="date"
            value={query.get(name) ?? ''}
            onChange={event => narrow({ [name]: event.currentTarget.value })}
          />
        </label>
      ))}
    </>
  )
}
