// The errors of a refusal: each at the field that it names, and in one place those that no field shows.
import { createContext, type ComponentChildren } from 'preact'
import { useCallback, useContext, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Refusal } from './session'

export interface Wrong {
  pointer: string
  message: string
}

const isWithin = (pointer: string, place: string) => pointer === place || pointer.startsWith(`${place}/`)
/** Where an error is shown: at the innermost of the places that it is in. */
const placeOf = ({ pointer }: Wrong, places: readonly string[]) =>
  places.filter(place => isWithin(pointer, place)).sort((a, b) => b.length - a.length)[0]

export const unplaced = (errors: readonly Wrong[], places: readonly string[]) =>
  errors.filter(error => placeOf(error, places) === undefined)

/** What stands at a place: where in its value each error is, such as a tag by its number, and what it says. */
export function sentencesAt(place: string, errors: readonly Wrong[], places: readonly string[]): string[] {
  return errors
    .filter(error => placeOf(error, places) === place)
    .map(({ pointer, message }) => {
      const inner = pointer.slice(place.length + 1)
      return `${/^\d+$/.test(inner) ? `${Number(inner) + 1}. ` : inner && `${inner}: `}${message}`
    })
}

interface Finding extends Wrong {
  severity: string
}
export const errorsIn = <T extends Pick<Finding, 'severity'>>(findings: readonly T[]) =>
  findings.filter(each => each.severity === 'error')
/** The errors of a check as a form shows them, at their pointers. */
export const refusalOf = (findings: readonly Finding[]) => new Refusal(0, '', '', errorsIn(findings))

/** A refusal whose errors are shown at other places than they name. */
export const moved = (of: Refusal, to: (pointer: string) => string) =>
  new Refusal(
    of.status,
    of.code,
    of.message,
    of.errors.map(({ pointer, message }) => ({ pointer: to(pointer), message })),
    of.requestId,
  )

interface Known {
  problem: Refusal | null
  first?: Refusal | null
  places: readonly string[]
  claim: (place: string) => () => void
}
const Around = createContext<Known>({ problem: null, places: [], claim: () => () => {} })

/** Around the fields of a form, which show the errors of this refusal. */
export function Errors({ problem, children }: { problem: Refusal | null; children: ComponentChildren }) {
  const places = useRef<string[]>([])
  const isRefused = useRef(false)
  const [, again] = useState(0)
  isRefused.current = !!problem?.errors.length
  const changed = () => {
    if (isRefused.current) again(n => n + 1)
  } // a field that comes or goes takes its errors with it
  const claim = useCallback((place: string) => {
    places.current = [...places.current, place]
    changed()
    return () => {
      places.current = places.current.toSpliced(places.current.indexOf(place), 1)
      changed()
    }
  }, [])
  return <Around.Provider value={{ problem, places: places.current, claim }}>{children}</Around.Provider>
}

/** Around some of these fields: what this refusal says of one goes before what that of the form does. */
export const First = ({ problem, children }: { problem: Refusal | null; children: ComponentChildren }) => (
  <Around.Provider value={{ ...useContext(Around), first: problem }}>{children}</Around.Provider>
)

/** The refusal, and those of its errors that no field shows. */
export function useRest(): { problem: Refusal | null; rest: readonly Wrong[] } {
  const { problem, places } = useContext(Around)
  return { problem, rest: unplaced(problem?.errors ?? [], places) }
}

/** What marks a control at this pointer, and what stands below it; `own` is what the page says itself, `hint` the id of what explains it. */
export function useErrors(pointer: string | undefined, own = '', hint = '') {
  const { problem, first, places, claim } = useContext(Around)
  const id = useId()
  useLayoutEffect(() => (pointer === undefined ? undefined : claim(pointer)), [claim, pointer])
  const at = (of: Refusal | null | undefined) =>
    of && pointer !== undefined ? sentencesAt(pointer, of.errors, places) : []
  const ahead = at(first)
  const said = own ? [own] : ahead.length ? ahead : at(problem)
  const isWrong = said.length > 0
  return {
    marks: {
      'aria-invalid': isWrong,
      'aria-describedby': [isWrong && id, hint].filter(Boolean).join(' ') || undefined,
    },
    below: isWrong && (
      <p class="wrong" id={id}>
        {said.join(' ')}
      </p>
    ),
  }
}

/** Moves the focus to the first field of these that has an error. */
export function toFirst(within: Element | null): void {
  const wrong = within?.querySelector<HTMLElement>('[aria-invalid=true], [data-invalid]')
  ;(wrong?.shadowRoot?.querySelector<HTMLElement>('[aria-invalid=true]') ?? wrong)?.focus()
}
