// Lengths of time: typed as a number and a unit, as the API has them in ISO 8601.
import { useState } from 'preact/hooks'
import { Field } from './ui'

const UNITS = { S: 'second', M: 'minute', H: 'hour', D: 'day', W: 'week' }
const SIMPLE = /^P(?:([\d.,]+)([WD])|T([\d.,]+)([HMS]))$/

/** Its number and its unit; nothing of one that has several units. */
function parts(length: string): { count: string; unit: string } {
  const [, days = '', day = '', hours = '', hour = ''] = SIMPLE.exec(length) ?? []
  return { count: days || hours, unit: day || hour }
}
const written = (count: string, unit: string) => `P${'DW'.includes(unit) ? '' : 'T'}${count}${unit}`

/** `P7D` as people say it. */
export function spelled(length: string): string {
  const { count, unit } = parts(length)
  return count ? `${count} ${UNITS[unit as keyof typeof UNITS]}${count === '1' ? '' : 's'}` : length
}

/** A text that is no number stays as it is: who knows the format may write P1DT12H, which begins with the length P1D. */
export function Length({ value, set, ...rest }: Parameters<typeof Field>[0]) {
  const { count, unit } = parts(value)
  const [last, setLast] = useState('D') // while there is no number
  const [draft, setDraft] = useState<string | null>(null) // while the focus is in it
  const now = unit || (value ? '' : last)
  const typed = (text: string) => {
    setDraft(text)
    if (unit) setLast(unit)
    set(/^[\d.,]*\d$/.test(text.trim()) ? written(text.trim(), now || last) : text)
  }
  const turn = (to: string) => {
    setLast(to)
    if (count) set(written(count, to))
  }
  return (
    <div onFocusOut={() => setDraft(null)}>
      <Field
        {...rest}
        value={draft ?? (count || value)}
        set={typed}
        beside={
          <select aria-label="Unit" value={now} onChange={event => turn(event.currentTarget.value)}>
            {!now && <option value="">as written</option>}
            {Object.entries(UNITS).map(([key, name]) => (
              <option key={key} value={key}>
                {name}s
              </option>
            ))}
          </select>
        }
      />
    </div>
  )
}
