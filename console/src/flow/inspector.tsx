// The form beside the canvas: the members of one card, and where its ports lead.
import { KINDS } from '../words'
import { Button, Field } from '../ui'
import { Members, Typed, said, words } from './form'
import { TRIGGER, portsOf, type Schema } from './kinds'
import {
  at,
  connected,
  moved,
  placeOf,
  pointer,
  put,
  renamed,
  view,
  type Card,
  type Exit,
  type Json,
  type View,
} from './model'
import { Known, Trigger, type OfTrigger } from './trigger'

interface Props extends OfTrigger {
  card: Card
  seen: View
  free: boolean
  aim: (exit: Exit) => void
  remove: () => void
  follow: (id: string) => void
}

export function Inspector(props: Props) {
  const { doc, card, seen, all, findings, free, edit, remove } = props
  const place = pointer(card.place)
  const found = findings.filter(each => [place, pointer(card.config), `${place}/type`].includes(each.pointer))
  const kind = all.all.get(card.kind)
  const schema: Schema = kind?.schema ?? {}
  const arms = new Set(
    free
      ? []
      : [...portsOf(all, card.kind).open, ...portsOf(all, card.kind).wired].filter(port =>
          Array.isArray(card.members[port]),
        ),
  )
  const own = Object.keys(schema.properties ?? {}).filter(name => !arms.has(name))
  const id = (at(doc, card.place) as Json | undefined)?.id
  const index = Number(card.place.at(-1))
  const siblings = free ? 0 : ((at(doc, card.place.slice(0, -1)) as unknown[] | undefined)?.length ?? 0)
  /** The members of a card, kept beside what the form does not show: its name, its kind, its arms. */
  const set = (next: unknown) => {
    const changed = put(doc, card.config, next)
    edit(changed, placeOf(doc, changed))
  }
  return (
    <>
      <h2 tabIndex={-1}>{KINDS[card.kind] ?? words(card.kind)}</h2>
      {kind && <p class="hint">{said(kind.about)}</p>}
      {found.map(each => (
        <p key={each.code} class={each.severity === 'error' ? 'wrong' : 'odd'}>
          {each.message}
        </p>
      ))}
      {card.kind === TRIGGER ? (
        <Trigger {...props} />
      ) : (
        <>
          <Typed
            label="ID"
            text={typeof id === 'string' ? id : ''}
            pointer={`${place}/id`}
            hint={
              <>
                Its name; <code>{`{{steps.${card.id}…}}`}</code> reads its output.
              </>
            }
            read={text => {
              if (free && (!text || seen.cards.some(other => other !== card && other.id === text)))
                return text ? 'Another step has this ID.' : 'It needs an ID.'
              const next = renamed(doc, card, text)
              edit(next, `${place} id`)
              props.follow(view(next, all).cards.find(each => pointer(each.place) === place)?.id ?? '') // without one, a step is called by its place
              return undefined
            }}
          />
          {['branch', 'wait_for', 'add_tag', 'remove_tag', 'update_contact'].includes(card.kind) && (
            <Known of={props.of} id={props.id} isHook={doc.trigger.source === 'inbound_webhook'} />
          )}
          <Members
            place={card.config}
            schema={schema}
            value={card.members}
            set={set}
            of={{ all, findings }}
            only={own}
          />
        </>
      )}
      <Ways {...props} />
      <p class="buttons">
        {!free && card.kind !== TRIGGER && (
          <>
            <Button small disabled={index === 0} onClick={() => edit(moved(doc, card, -1))}>
              Move up
            </Button>
            <Button small disabled={index >= siblings - 1} onClick={() => edit(moved(doc, card, 1))}>
              Move down
            </Button>
          </>
        )}
        {(free || card.kind !== TRIGGER) && (
          <Button class="small danger" onClick={remove}>
            Remove
          </Button>
        )}
      </p>
    </>
  )
}

/** Where each port leads: the keyboard's way to connect, and the only one on a small screen. */
function Ways({ doc, card, seen, all, free, edit, aim }: Props) {
  if (!card.ports.length) return <p class="hint">Runs end here.</p>
  const about = portsOf(all, card.kind).about
  const nodes = seen.cards
    .filter(each => each.kind !== TRIGGER && each.id !== card.id)
    .map(each => [each.id, each.id] as const)
  return (
    <fieldset class="group">
      <legend>Next steps</legend>
      {card.ports.map(port => {
        const target = seen.links.find(link => link.source === card.id && link.port === port)?.target ?? ''
        const label = card.ports.length > 1 || port !== 'next' ? `${port} leads to` : 'Leads to'
        return (
          <div key={port}>
            {free ? (
              <Field
                label={label}
                value={target}
                options={[['', 'nothing: the run ends'], ...nodes]}
                set={chosen => edit(connected(doc, { id: card.id, port }, chosen || null))}
              />
            ) : (
              <p class="way-out">
                <b>{label}</b> {target || 'the end of the run'}
              </p>
            )}
            <p class="hint">
              {about[port] && `${words(about[port].split('`').join(''))}. `}
              <Button small aria-label={`Add here, after ${port}`} onClick={() => aim({ id: card.id, port })}>
                Add here
              </Button>
            </p>
          </div>
        )
      })}
    </fieldset>
  )
}
