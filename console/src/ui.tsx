// The few parts that every screen is made of.
import { Fragment, type ComponentChildren } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { REST_MS, useAct, type Act, type Edited, type Listed, type Loaded } from './data'
import { Errors, toFirst, useErrors, useRest, type Wrong } from './errors'
import { flaw, isNumber } from './exact'
import { useMe } from './me'
import { href, narrow, useLocation, useFilter } from './router'
import type { Refusal } from './session'
import { asItReads } from './words'

type Children = { children?: ComponentChildren }

/** One screen: its heading gets the focus, so that a reader hears where they are. `id`: of what it shows. */
export function Screen({
  title,
  id,
  lead = id && <code>{id}</code>,
  actions,
  children,
}: Children & { title: string; id?: string | undefined; lead?: ComponentChildren; actions?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Tidings`
  }, [title])
  useEffect(() => {
    heading.current?.focus({ preventScroll: true })
  }, [])
  return (
    <>
      <header class="top">
        <div>
          <h1 ref={heading} tabIndex={-1}>
            {title}
          </h1>
          {lead && <p class="lead">{lead}</p>}
        </div>
        {actions && <div class="actions">{actions}</div>}
      </header>
      {children}
    </>
  )
}

export const Section = ({ title, actions, children }: Children & { title: string; actions?: ComponentChildren }) => (
  <section>
    <div class="head">
      <h2>{title}</h2>
      {actions}
    </div>
    {children}
  </section>
)

/** A refusal in words, with `rest` of its errors, which no field shows: all, where none is. What fields show is not said twice. */
export function Refused({
  problem,
  rest = problem?.errors ?? [],
}: {
  problem: Refusal | null
  rest?: readonly Wrong[]
}) {
  if (!problem || (!problem.message && !rest.length)) return null
  const isPlaced = problem.code === 'invalid' && rest.length < problem.errors.length
  return (
    <div class="refused" role="alert">
      <p>{isPlaced ? `Fix the fields marked in red${rest.length ? ', and this:' : '.'}` : problem.message}</p>
      {rest.length > 0 && (
        <ul>
          {rest.map(error => (
            <li key={error.pointer + error.message}>
              <code>{error.pointer || 'request'}</code> {error.message}
            </li>
          ))}
        </ul>
      )}
      {problem.status >= 500 && problem.requestId && <p class="soft">Request {problem.requestId}</p>}
    </div>
  )
}

/** In a form, below its fields: the refusal, with what none of them shows. */
export const Rest = () => <Refused {...useRest()} />

export const Link = ({
  to,
  children,
  ...rest
}: Children & { to: string; class?: string; target?: '_blank'; 'aria-current'?: 'page' | undefined }) => (
  <a href={href(to)} {...rest}>
    {children}
  </a>
)

export const Disallowed = () => (
  <p class="empty">Your role ({useMe().role}) does not allow this. An admin of the workspace can change your role.</p>
)
export const NotAllowed = () => (
  <Screen title="Not allowed">
    <Disallowed />
  </Screen>
)

/** One that sends no form. */
export const Button = ({ small = false, ...props }: Pressed) => (
  <button type="button" class={small ? 'small' : undefined} {...props} />
)
type Pressed = preact.JSX.IntrinsicElements['button'] & { small?: boolean }

/** A button that does something at once, and says below itself why not, unless what shows this `act` does. */
export function Press({ act, work, disabled, ...rest }: Pressed & { act?: Act; work: () => Promise<unknown> }) {
  const own = useAct()
  const { busy, run } = act ?? own
  return (
    <>
      <Button {...rest} disabled={busy || disabled} onClick={() => void run(work)} />
      <Refused problem={own.problem} />
    </>
  )
}

/** Pages below one address, of which `now` is shown. */
export const Tabs = ({
  label,
  at,
  of,
  now,
  children,
}: Children & {
  label: string
  at: string
  of: readonly (readonly [key: string, name: string, ...rest: unknown[]])[]
  now: string
}) => (
  <nav class="tabs" aria-label={label}>
    {of.map(([key, name]) => (
      <Link key={key} to={key ? `${at}/${key}` : at} aria-current={key === now ? 'page' : undefined}>
        {name}
      </Link>
    ))}
    {children}
  </nav>
)

/** Ways to look at the same, one of which is chosen. */
export const Views = <T extends string>({
  label,
  of,
  value,
  set,
  disabled,
}: {
  label: string
  of: Record<T, string>
  value: T
  set: (value: T) => void
  disabled?: T | false
}) => (
  <div class="views" role="group" aria-label={label}>
    {(Object.entries(of) as [T, string][]).map(([key, name]) => (
      <Button key={key} aria-pressed={key === value} disabled={key === disabled} onClick={() => set(key)}>
        {name}
      </Button>
    ))}
  </div>
)

// --- times, statuses and other small words ---

const CLOCK = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
const RELATIVE = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' })
const UNITS: [Intl.RelativeTimeFormatUnit, number][] = [
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
]

/** A moment in the viewer's zone, for a text that holds no element: `When` is for all else. */
export const clock = (at: string): string => CLOCK.format(new Date(at))

function ago(text: string): string {
  const seconds = (Date.parse(text) - Date.now()) / 1000
  const [unit, size] = UNITS.find(([, each]) => Math.abs(seconds) >= each) ?? ['second', 1]
  return RELATIVE.format(Math.round(seconds / size), unit)
}

/** In the viewer's zone, with UTC on hover. */
export const When = ({
  at,
  none = '–',
  relative = false,
}: {
  at: string | null | undefined
  none?: string
  relative?: boolean
}) =>
  at ? (
    <time dateTime={at} title={relative ? `${clock(at)} (${at})` : at}>
      {relative ? ago(at) : clock(at)}
    </time>
  ) : (
    <>{none}</>
  )

const NOTABLE = /(?<!["“])(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z|\bseg_\w+)/ // not of a value that is quoted

/** A sentence of the service; a moment in it stands as others on the page do, and a segment that has a name by it. */
export const Sentence = ({ text, names }: { text: string; names?: ReadonlyMap<string, string> }) => (
  <>
    {text.split(NOTABLE).map((part, index) => {
      const name = names?.get(part) ?? part
      if (name !== part)
        return (
          <Link key={index} to={`/segments/${part}`}>
            {name}
          </Link>
        )
      return index % 2 && !Number.isNaN(Date.parse(part)) ? <When key={index} at={part} /> : part
    })}
  </>
)

const GOOD = new Set(['COMPLETED', 'SENT', 'DELIVERED', 'ACCEPTED', 'SUCCEEDED', 'ACTIVE', 'PASSED'])
const BAD = new Set(['FAILED', 'BOUNCED', 'COMPLAINED', 'REFUSED', 'error'])
const ODD = new Set(['UNKNOWN', 'SUPPRESSED', 'CANCELLED', 'PAUSED', 'warning', 'REPEATED'])

export function Status({ value }: { value: string }) {
  const tone = GOOD.has(value) ? 'good' : BAD.has(value) ? 'bad' : ODD.has(value) ? 'odd' : 'plain'
  return <span class={`status ${tone}`}>{worded(value)}</span>
}

export const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1)
/** A code, such as `not_found` or `SENT`, as people write it. */
export const worded = (code: string) => code.charAt(0) + code.slice(1).toLowerCase().replaceAll('_', ' ')

/** What a check found; `at` says where. */
export const Findings = <T extends { severity: string; message: string }>({
  of,
  at,
}: {
  of: readonly T[]
  at?: (one: T) => ComponentChildren
}) =>
  of.length ? (
    <ul class="plain found">
      {of.map((one, index) => (
        <li key={index}>
          <Status value={one.severity} /> {at?.(one)} {one.message}
        </li>
      ))}
    </ul>
  ) : null

const second = (at: unknown) => Math.floor(Date.parse(String(at)) / 1000)
const valued = (value: unknown, other: unknown) =>
  value == null ? (
    <i>nothing</i>
  ) : value && typeof value === 'string' && !value.replace(NOTABLE, '') && second(value) !== second(other) ? (
    <Sentence text={value} />
  ) : (
    asItReads(value)
  )

/** What became of values, by name. */
export const Changes = ({
  of,
  name = each => each,
}: {
  of: Record<string, unknown[]>
  name?: (key: string) => string
}) => (
  <ul class="plain">
    {Object.entries(of).map(([key, [before, after]]) => (
      <li key={key}>
        {name(key)}: <del>{valued(before, after)}</del> → <ins>{valued(after, before)}</ins>
      </li>
    ))}
  </ul>
)

export const plural = (count: number, one: string, many = `${one}s`) =>
  `${count.toLocaleString()} ${count === 1 ? one : many}`

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState({ text: '', as: '' })
  if (!navigator.clipboard) return null
  const copied = (as: string) => () => setDone({ text, as })
  const said = done.text === text ? done.as : '' // not of another text, which is not in the clipboard
  return (
    <>
      <Button
        small
        onClick={() =>
          void navigator.clipboard.writeText(text).then(copied('Copied'), copied('Not copied: select it instead'))
        }
      >
        {said || label}
      </Button>
      <span class="unseen" role="status">
        {said}
      </span>
    </>
  )
}

// --- what was read, and lists of it ---

/** In the place of what was not read yet: that it is being read, or why it was not. */
export const Unread = ({ of: { problem, reload } }: { of: Pick<Loaded<unknown>, 'problem' | 'reload'> }) =>
  problem ? (
    <>
      <Refused problem={problem} />
      <Button onClick={() => void reload()}>Try again</Button>
    </>
  ) : (
    <p class="soft" role="status">
      Loading…
    </p>
  )

export const Shown = <T,>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) =>
  of.value === null ? (
    <Unread of={of} />
  ) : (
    <>
      <Refused problem={of.problem} />
      {children(of.value)}
    </>
  )

/** What is stored, once it is read; until then the screen is called so. */
export const Opened = <T,>({
  of,
  title,
  children,
}: {
  of: Loaded<Pick<Edited<T>, 'tag'> & { value: T }> & Pick<Edited<T>, 'again'>
  title: string
  children: (edited: Edited<T>) => ComponentChildren
}) =>
  of.value ? (
    <>{children({ stored: of.value.value, tag: of.value.tag, again: of.again })}</>
  ) : (
    <Screen title={title}>
      <Unread of={of} />
    </Screen>
  )

/** What a column is called, what it shows of a row, and how it looks. */
export type Column<T> = readonly [name: string, show: (row: T) => ComponentChildren, look?: 'wide']
/** Columns of several lists. */
export const CREATED: Column<{ createdAt: string }> = ['Created', each => <When at={each.createdAt} />],
  UPDATED: Column<{ updatedAt: string }> = ['Updated', each => <When at={each.updatedAt} />],
  STATUS: Column<{ status: string }> = ['Status', each => <Status value={each.status} />]
interface Columns<T> {
  columns: readonly Column<T>[]
  id?: (row: T) => string
}

/** A table, which a phone shows row by row, each value with the name of its column; without actions where nobody may do one. */
export function Rows<T extends object>({
  of,
  caption,
  columns,
  id = row => String(row['id' as keyof T]),
  look,
}: Columns<T> & { of: readonly T[]; caption: string; look?: string }) {
  const shown = columns.filter(([name, show]) => name !== 'Actions' || of.some(row => show(row)))
  return (
    <table class={look}>
      <caption class="unseen">{caption}</caption>
      <thead>
        <tr>
          {shown.map(([name]) => (
            <th key={name} scope="col">
              {name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {of.map(row => (
          <tr key={id(row)}>
            {shown.map(([name, show, look]) => (
              <td key={name} data-name={name} class={look}>
                <div>{show(row)}</div>
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}

/** What stands in the place of rows: that there are `none`, and how they come. */
interface Emptiness {
  none?: string | undefined
  empty?: ComponentChildren
}
export type Tabled<T> = Columns<T> & Emptiness & { of: Listed<T>; caption?: string }

/** Where a list has no rows: where the address narrows it, the way to all of them. */
export const Nothing = ({
  of,
  what,
  none = `No ${what} yet.`,
  empty,
}: Emptiness & { of: Pick<Listed<unknown>, 'clear'>; what: string }) => (
  <p class="empty" role={of.clear ? 'status' : undefined}>
    {of.clear ? (
      <>
        No {what} match.{' '}
        <Button
          class="plain"
          onClick={() => {
            of.clear?.()
            document.querySelector<HTMLElement>('.filters input, .filters select')?.focus()
          }}
        >
          Show all
        </Button>
      </>
    ) : (
      <>
        {none} {empty}
      </>
    )}
  </p>
)

/** A list page by page; `what` its rows are called. `caption`: of one that does not begin with the newest. */
export function Table<T extends object>({
  of,
  what,
  none,
  empty,
  caption = `${capital(what)}, newest first`,
  ...rest
}: Tabled<T> & { what: string }) {
  if (of.rows === null) return <Unread of={of} />
  return (
    <>
      <Refused problem={of.problem} />
      {of.rows.length > 0 ? (
        <Rows of={of.rows} caption={caption} {...rest} />
      ) : (
        !of.more && <Nothing of={of} what={what} none={none} empty={empty} />
      )}
      <ShowMore of={of} />
    </>
  )
}

/** Below a list, where there is more of it. */
export const ShowMore = ({ of }: { of: Pick<Listed<unknown>, 'more' | 'busy' | 'isCut'> }) =>
  of.more && (
    <p>
      {of.isCut && 'You had opened more of this list: Show more goes on. '}
      <Button disabled={of.busy} onClick={() => void of.more?.()}>
        Show more
      </Button>
    </p>
  )

type Growing = (Omit<Listed<unknown>, 'rows'> & { rows: readonly unknown[] | null }) | undefined

/** Beside a choice among more than it shows yet, or whose list is being read, or could not be. */
function More({ of, label }: { of: Growing; label: string }) {
  if (of?.problem)
    return (
      <span class="wrong" role="status">
        {of.problem.message}{' '}
        <Button small aria-label={`Try again: ${label}`} onClick={() => void of.reload()}>
          Try again
        </Button>
      </span>
    )
  if (of?.rows === null)
    return (
      <span class="soft" role="status">
        Loading…
      </span>
    )
  return of?.more ? (
    <Button small aria-label={`Show more: ${label}`} disabled={of.busy} onClick={() => void of.more?.()}>
      Show more
    </Button>
  ) : null
}

/** Above a list: its filters, and behind `more` those that are wanted seldom, unless one of them narrows it. */
export function Filters({ children, more, opened }: Children & { more?: ComponentChildren; opened?: () => void }) {
  const folded = useRef<HTMLDetailsElement>(null)
  useLayoutEffect(() => {
    const all = folded.current?.querySelectorAll<HTMLInputElement>('input, select') ?? []
    if ([...all].some(each => each.value)) folded.current!.open = true
  }, [useLocation().query.toString()])
  return (
    <form class="filters" role="search" onSubmit={event => event.preventDefault()}>
      {children}
      {more && (
        <details ref={folded} onToggle={opened}>
          <summary>More filters</summary>
          <div class="filters">{more}</div>
        </details>
      )}
    </form>
  )
}

/** A filter that is kept in the address bar. */
export function Choice({
  name,
  label = capital(name),
  options,
  any = 'any',
  growing,
}: {
  name: string
  label?: string
  options: readonly (string | readonly [string, string])[]
  any?: string
  growing?: Growing
}) {
  return (
    <>
      <label>
        {label}
        <select value={useFilter(name)} onChange={event => narrow({ [name]: event.currentTarget.value })}>
          <option value="">{any}</option>
          {options.map(option => {
            const [key, words] = typeof option === 'string' ? [option, worded(option)] : option
            return (
              <option key={key} value={key}>
                {words}
              </option>
            )
          })}
        </select>
      </label>
      <More of={growing} label={label} />
    </>
  )
}

/** A text filter, which narrows the list shortly after the last key. `wrong` says what in it narrows nothing. */
export function Search({
  name,
  label = capital(name),
  placeholder,
  list,
  wrong = '',
}: {
  name: string
  label?: string
  placeholder?: string
  list?: string
  wrong?: string
}) {
  const id = useId()
  const value = useFilter(name)
  const [text, setText] = useState(value)
  const timer = useRef(0)
  const meant = useRef(value)
  useEffect(() => () => clearTimeout(timer.current), []) // the address is another list's by then
  useEffect(() => {
    if (value !== meant.current) setText(value) // as the way back has it
    meant.current = value
  }, [value])
  const typed = (next: string) => {
    setText(next)
    clearTimeout(timer.current)
    timer.current = setTimeout(() => {
      meant.current = next.trim()
      narrow({ [name]: meant.current })
    }, 250)
  }
  return (
    <>
      <label>
        {label}
        <input
          type="search"
          value={text}
          placeholder={placeholder}
          list={list}
          autocomplete="off"
          spellcheck={false}
          aria-invalid={!!wrong}
          aria-describedby={wrong ? id : undefined}
          onInput={event => typed(event.currentTarget.value)}
        />
      </label>
      {wrong && (
        <span class="wrong" id={id} role="status">
          {wrong}
        </span>
      )}
    </>
  )
}

// --- forms ---

type FieldProps = {
  label: string
  value: string
  set(value: string): void // a method, which takes what is offered alone, too
  pointer?: string | undefined
  wrong?: string
  hint?: ComponentChildren
  options?: readonly (readonly [string, string])[]
  growing?: Growing
  rows?: number
  beside?: ComponentChildren
  type?: 'text' | 'email' | 'password' | 'number' | 'url' | 'time' | 'date' | 'datetime-local' | 'search'
  required?: boolean
  autocomplete?: string
  list?: string
  placeholder?: string | undefined
  min?: string
  max?: string
}

/** A field with what is wrong at its pointer, or with what the page itself finds `wrong`. */
export function Field({
  label,
  value,
  set,
  pointer,
  wrong,
  hint,
  options,
  growing,
  rows,
  beside,
  ...rest
}: FieldProps) {
  const id = useId()
  const { marks, below } = useErrors(pointer, wrong, hint ? `${id}-hint` : '')
  const shared = { id, value, ...marks }
  const onInput = (event: { currentTarget: { value: string } }) => set(event.currentTarget.value)
  const { type, min, max, ...common } = rest
  return (
    <div class={beside ? 'field pair-of' : 'field'}>
      <label for={id}>{label}</label>
      {options ? (
        <select {...shared} {...common} onChange={onInput}>
          {options.map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </select>
      ) : rows ? (
        <textarea {...shared} {...common} rows={rows} spellcheck={false} onInput={onInput} />
      ) : (
        <input {...({ ...shared, ...common, type: type ?? 'text', min, max, onInput } as object)} />
      )}
      {beside}
      <More of={growing} label={label} />
      {below}
      {hint && (
        <p class="hint" id={`${id}-hint`}>
          {hint}
        </p>
      )}
    </div>
  )
}

/** Proposes time zones to a field whose `list` is this one. */
export const ZONES = 'zones'
export const Zones = () => (
  <datalist id={ZONES}>
    {Intl.supportedValuesOf('timeZone').map(zone => (
      <option key={zone} value={zone} />
    ))}
  </datalist>
)

/** A box for JSON: where it stops being JSON is said shortly after the last key. */
export function JsonText({ value, ...rest }: FieldProps) {
  const [rested, setRested] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setRested(value), REST_MS)
    return () => clearTimeout(timer)
  }, [value])
  return <Field {...rest} value={value} wrong={rested.trim() && flaw(rested)} />
}

type Marks = ReturnType<typeof useErrors>['marks']

/** `marks`: of the group that it is one of. */
export function Check({
  label,
  value,
  set,
  pointer,
  marks,
  disabled = false,
}: {
  label: string
  value: boolean
  set: (value: boolean) => void
  pointer?: string
  marks?: Marks
  disabled?: boolean
}) {
  const own = useErrors(pointer)
  return (
    <>
      <label class="check">
        <input
          type="checkbox"
          checked={value}
          disabled={disabled}
          {...(marks ?? own.marks)}
          onChange={event => set(event.currentTarget.checked)}
        />{' '}
        {label}
      </label>
      {own.below}
    </>
  )
}

/** Some of `options`, with what is wrong about them. */
export function Several({
  label,
  hint,
  options,
  value,
  set,
  pointer,
  look = 'several',
}: {
  label: string
  hint?: ComponentChildren
  options: Record<string, string>
  value: readonly unknown[]
  set(chosen: string[]): void
  pointer: string
  look?: 'several' | 'columns'
}) {
  const { marks, below } = useErrors(pointer)
  return (
    <fieldset class="group">
      <legend>{label}</legend>
      {hint && <p class="hint">{hint}</p>}
      <div class={look}>
        {Object.entries(options).map(([key, words]) => (
          <Check
            key={key}
            label={words}
            value={value.includes(key)}
            marks={marks}
            set={isOn => set(Object.keys(options).filter(one => (one === key ? isOn : value.includes(one))))}
          />
        ))}
      </div>
      {below}
    </fieldset>
  )
}

/** `act`: where something else has to know of it. `success`: what nothing else on the page says once it is done. */
export function Form({
  act,
  submit,
  label,
  success,
  children,
  extra,
}: Children & {
  act?: Act
  submit: () => Promise<unknown>
  label: string
  success?: string
  extra?: ComponentChildren
}) {
  const [isDone, setDone] = useState(false)
  const isTyped = useRef(false) // since it was sent: what was done is of another text
  const form = useRef<HTMLFormElement>(null)
  const own = useAct()
  const { run, problem, busy } = act ?? own
  return (
    <form
      ref={form}
      class="form"
      onInput={() => {
        isTyped.current = true
        setDone(false)
      }}
      onSubmit={event => {
        event.preventDefault()
        isTyped.current = false
        setDone(false)
        void run(submit).then(fine => {
          setDone(fine && !isTyped.current)
          if (!fine) toFirst(form.current)
        })
      }}
    >
      <Errors problem={problem}>
        {children}
        <Rest />
      </Errors>
      <p class="buttons">
        <button class="primary" disabled={busy}>
          {label}
        </button>
        {extra} {isDone && success && <span role="status">{success}</span>}
      </p>
    </form>
  )
}

/** An act that says what it will do before it is done, of what `read` finds first; where nothing has to be asked, it is done at once. */
export function Confirm({
  id,
  label,
  title,
  children,
  read,
  act,
  isAsked = () => true,
  sure = label,
  leave = 'Cancel',
  look = '',
  danger = false,
  primary = false,
  disabled = false,
}: Children & {
  id?: string
  label: string
  title: string
  read?: () => Promise<unknown>
  act: () => Promise<unknown>
  isAsked?: () => boolean
  sure?: string
  leave?: string
  look?: 'small' | 'plain' | ''
  danger?: boolean
  primary?: boolean
  disabled?: boolean
}) {
  const dialog = useRef<HTMLDialogElement>(null)
  const acting = useAct()
  const [isRead, setRead] = useState(!read)
  const [asks, setAsks] = useState(isAsked)
  const [opened, setOpened] = useState(0) // how often: of a long list, most dialogs never are
  useLayoutEffect(() => {
    dialog.current?.showModal()
    if (danger) dialog.current?.querySelector<HTMLElement>('form > :last-child > :last-child')?.focus() // a second Enter does no harm
  }, [opened])
  const isDoing = acting.busy && isRead
  const open = () => {
    if (isDoing) return
    acting.clear()
    setRead(!read)
    setAsks(isAsked())
    if (!isAsked()) return done()
    setOpened(opened + 1)
    if (read) void acting.run(read).then(setRead)
  }
  /** A browser may have closed it all the same: a refusal is shown. */
  const refused = () => {
    if (!dialog.current) return setOpened(1)
    if (!dialog.current.open) dialog.current.showModal()
    toFirst(dialog.current)
  }
  const done = () => {
    const from = document.activeElement
    void acting.run(act).then(fine => {
      if (!fine) return refused()
      dialog.current?.close()
      if (!from?.isConnected && document.activeElement === document.body)
        document.querySelector('h1')?.focus({ preventScroll: true }) // what was pressed is gone
    })
  }
  return (
    <>
      <Button
        id={id}
        class={danger ? 'danger' : primary ? 'primary' : look}
        aria-haspopup={asks ? 'dialog' : undefined}
        disabled={disabled}
        onFocus={() => setAsks(isAsked())}
        onClick={open}
      >
        {label}
      </Button>
      {opened > 0 && (
        <dialog
          ref={dialog}
          aria-label={title}
          onCancel={event => {
            if (isDoing) event.preventDefault()
          }}
        >
          <h2>{title}</h2>
          <form
            noValidate
            onSubmit={event => {
              event.preventDefault()
              done()
            }}
          >
            <Errors problem={acting.problem}>
              {asks && <Fragment key={opened}>{children}</Fragment>}
              <Rest />
            </Errors>
            <p class="buttons">
              <button class={danger ? 'danger primary' : 'primary'} disabled={acting.busy || !isRead}>
                {sure}
              </button>
              <Button disabled={isDoing} onClick={() => dialog.current?.close()}>
                {leave}
              </Button>
            </p>
          </form>
        </dialog>
      )}
    </>
  )
}

export const Facts = ({ of }: { of: readonly (readonly [string, ComponentChildren])[] }) => (
  <dl class="facts">
    {of.map(([name, value]) => (
      <div key={name}>
        <dt>{name}</dt>
        <dd>{value ?? '–'}</dd>
      </div>
    ))}
  </dl>
)

// --- JSON ---

const SIMPLE = /^[A-Za-z_][A-Za-z0-9_-]*$/
export const step = (path: string, key: string | number) =>
  typeof key === 'number'
    ? `${path}[${key}]`
    : SIMPLE.test(key)
      ? path
        ? `${path}.${key}`
        : key
      : `${path}[${JSON.stringify(key)}]`

const MOST = 200 // of one object or list: a body may have a hundred thousand

/** A value as a tree. With `pick`, a click on a value hands over its path. */
export function Json({
  value,
  path = '',
  name,
  pick,
  open = true,
}: {
  value: unknown
  path?: string
  name?: string
  pick?: ((path: string, value: unknown) => void) | undefined
  open?: boolean
}) {
  const label = name === undefined ? null : <span class="key">{name}: </span>
  if (value === null || typeof value !== 'object' || isNumber(value)) {
    const text = (
      <span class={`value ${isNumber(value) ? 'number' : typeof value}`}>{JSON.stringify(value) ?? 'nothing'}</span>
    )
    return (
      <div class="leaf">
        {label}
        {pick ? (
          <Button class="pick" title={path} onClick={() => pick(path, value)}>
            {text}
          </Button>
        ) : (
          text
        )}
      </div>
    )
  }
  const isList = Array.isArray(value)
  const items: [string | number, unknown][] = isList ? value.map((one, index) => [index, one]) : Object.entries(value)
  if (!items.length)
    return (
      <div class="leaf">
        {label}
        <span class="value">{isList ? '[]' : '{}'}</span>
      </div>
    )
  return (
    <details class="json" open={open}>
      <summary>
        {label}
        <span class="soft">{isList ? plural(items.length, 'item') : plural(items.length, 'field')}</span>
      </summary>
      {items.slice(0, MOST).map(([key, one]) => (
        <Json
          key={key}
          value={one}
          path={step(path, key)}
          name={String(key)}
          pick={pick}
          open={open && items.length < 30}
        />
      ))}
      {items.length > MOST && <div class="leaf soft">and {items.length - MOST} more</div>}
    </details>
  )
}
