// The flow editor: a canvas, a palette, a form for what is selected, and what the check finds while one types.
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { asRefusal, Once, once, useLoaded } from '../data'
import { isNumber, isObject, same, textOf } from '../exact'
import { useCan } from '../me'
import { Later } from '../later'
import { spelled } from '../lengths'
import { useTemplateNames, type Kind } from '../names'
import { Errors, errorsIn, refusalOf, toFirst, unplaced } from '../errors'
import { KINDS, occasion } from '../words'
import { Button, Confirm, Field, Refused, Screen, Status, Unread, Views, plural } from '../ui'
import { FlowTabs, underWay } from '../screens/flows'
import { Canvas, NOTHING, type Played, type Shown as Look } from './canvas'
import { words, type Finding } from './form'
import { Inspector } from './inspector'
import { readFlow, type Stored } from './kept'
import { useKeys } from './keys'
import { TRIGGER, kinds, type Kinds } from './kinds'
import {
  added,
  connected,
  copied,
  docOf,
  locator,
  moved,
  pasted,
  placed,
  removed,
  spotOf,
  view,
  written,
  type Card,
  type Doc,
  type Exit,
  type Json,
} from './model'
import { Findings, Palette } from './palette'
import { useSaving } from './saving'

// Loaded once it is wanted.
const simulating = () => import('./simulator')
const comparing = () => import('./changed')

export function FlowEditor({ of, id }: { of: Kind; id: string }) {
  const stored = useLoaded(() => readFlow(of, id), [of, id])
  const all = useLoaded(kinds, [])
  const reading = useMemo(once, [])
  const names = useTemplateNames(
    [...JSON.stringify(stored.value?.value ?? null).matchAll(/"templateId":"([^"]+)"/g)].map(([, id]) => id!),
  )
  if (!stored.value || !all.value)
    return (
      <Screen title="Flow">
        <Unread of={stored.value ? all : stored} />
      </Screen>
    )
  return (
    <Once.Provider value={reading}>
      <Editor of={of} id={id} stored={stored.value} all={all.value} names={names} />
    </Once.Provider>
  )
}

// --- the screen ---

function Editor({
  of,
  id,
  stored,
  all,
  names,
}: {
  of: Kind
  id: string
  stored: Stored
  all: Kinds
  names: Map<string, string>
}) {
  const [status, setStatus] = useState('')
  const saving = useSaving(of, id, stored, setStatus)
  const { history, check, base, secret, setSecret, isChanged, isVeiled, hasCredentials, problem, conflict, save } =
    saving
  const doc = history.now
  const [{ selected, form }, choose] = useState({ selected: [] as string[], form: 0 })
  const setSelected = (selected: string[]) => choose(old => ({ selected, form: old.form + 1 }))
  const follow = (id: string) => choose(old => ({ ...old, selected: [id] })) // the same step, renamed: its form stays, in which somebody types
  const [panel, setPanel] = useState<'step' | 'simulate'>('step')
  const [play, setPlay] = useState<Played>(NOTHING)
  const [look, setLook] = useState(0)
  const [spot, setSpot] = useState<Exit | null>(null)
  const inspector = useRef<HTMLDivElement>(null)
  const palette = useRef<HTMLDivElement>(null)
  const locked = !useCan()(`${of}:write`) || base.value.state === 'ARCHIVED'
  const seen = useMemo(() => view(doc, all), [doc, all])
  const entry = seen.cards.find(card => card.kind === TRIGGER)?.id ?? TRIGGER
  const card = seen.cards.find(each => each.id === selected.at(-1)) ?? null

  const quietly = () =>
    void save().catch(error => {
      saving.setProblem(asRefusal(error))
      const [first] = asRefusal(error).errors
      if (!first) return
      setSelected([locate(first.pointer)?.id ?? ''])
      setPanel('step')
      requestAnimationFrame(() => toFirst(inspector.current))
    })

  // --- what is done to the definition ---
  const free = doc.shape === 'graph'
  const positions = useMemo(
    () =>
      free
        ? Object.fromEntries(doc.graph.nodes.map(node => [textOf(node.id ?? null), spotOf(node)]))
        : (check.positions ?? {}),
    [doc, free, check.positions],
  )
  const from = (): Exit | null => {
    if (!card) return null
    if (spot?.id === card.id) return spot
    if (!free) return { id: card.id, port: 'next' }
    const port =
      card.ports.find(each => !seen.links.some(link => link.source === card.id && link.port === each)) ?? card.ports[0]
    return port === undefined ? null : { id: card.id, port }
  }
  const below = (of?: string) => {
    const under =
      positions[of ?? ''] ??
      Object.values(positions).reduce((lowest, each) => (each.y > lowest.y ? each : lowest), { x: 0, y: -140 })
    return { x: under.x, y: under.y + 140 }
  }
  const focus = (ids: string[]) => {
    setSelected(ids)
    setPanel('step')
    requestAnimationFrame(() => inspector.current?.querySelector<HTMLElement>('h2')?.focus())
  }
  const add = (kind: string) => {
    const exit = from()
    const next = added(doc, all, kind, exit, below(exit?.id))
    history.edit(next.doc)
    setSpot(null)
    focus(next.ids)
    setStatus(`${KINDS[kind] ?? kind} added${exit ? ` after ${exit.id}` : ''}.`)
  }
  const aim = (exit: Exit) => {
    setSpot(exit)
    palette.current?.querySelector('button')?.focus()
  }
  const remove = (ids: readonly string[]) => {
    const gone = ids.filter(each => each !== entry || free)
    if (!gone.length) return
    history.edit(removed(doc, all, gone))
    focus([]) // what had the focus is gone
    setStatus(`${plural(gone.length, 'step')} removed. Undo brings ${gone.length === 1 ? 'it' : 'them'} back.`)
  }
  const addTrigger = () =>
    history.edit({
      ...doc,
      graph: {
        ...doc.graph,
        nodes: [
          {
            id: seen.cards.some(each => each.id === TRIGGER) ? 'start' : TRIGGER,
            type: TRIGGER,
            position: { x: 0, y: -140 },
            data: {},
          },
          ...doc.graph.nodes,
        ],
      },
    })
  const tidy = () => {
    if (check.positions) {
      history.edit(placed(doc, check.positions))
      setLook(look + 1)
      setStatus('Tidied up.')
    }
  }
  const paste = (text: string) => {
    const next = pasted(doc, all, text, from())
    if (!next) return setStatus('The clipboard has no steps of this type of flow.')
    history.edit(next.doc)
    setSelected(next.ids)
    setStatus(`${plural(next.ids.length, 'step')} pasted.`)
  }

  // --- the keyboard and the clipboard ---
  const isArranged = check.positions !== null
  useEffect(() => {
    if (!free && isArranged) setLook(old => old + 1)
  }, [isArranged])
  useKeys(locked, {
    undo: history.undo,
    redo: history.redo,
    remove: selected.length ? () => remove(selected) : null,
    move: !free && card ? by => history.edit(moved(doc, card, by)) : null,
    copy: () => copied(doc, all, selected),
    cut: () => remove(selected),
    paste,
    say: setStatus,
  })

  // --- what is shown ---
  const locate = useMemo(() => locator(doc, seen), [seen])
  const marks = useMemo(() => {
    const found = new Map<string, Finding[]>()
    for (const each of check.findings) {
      const about = locate(each.pointer)?.id ?? ''
      const known = found.get(about)
      if (known) known.push(each)
      else found.set(about, [each])
    }
    return found
  }, [check.findings, seen])
  const shown = useCallback(
    (each: Card): Look => {
      const found = marks.get(each.id) ?? []
      const errors = errorsIn(found).length
      const count = base.value.stats.nodes[each.id]
      return {
        title: KINDS[each.kind] ?? words(each.kind),
        says: says(each, names),
        errors,
        warnings: found.length - errors,
        count: count ? `${count.here.toLocaleString()} here · ${count.passed.toLocaleString()} passed` : '',
        state: play.states.get(each.id) ?? '',
      }
    },
    [marks, names, base, play],
  )
  const errors = errorsIn(check.findings).length
  const here = `/flows/${of}/${id}`
  const state = base.value.state
  const follows = <WhatFollows base={base} doc={doc} errors={errors} />
  return (
    <Screen
      title={doc.name || 'Flow'}
      lead={
        <>
          <Status value={state} /> {base.value.version ? `version ${base.value.version}` : 'no version yet'} ·{' '}
          <span class={isChanged ? 'odd' : ''}>
            {saving.isSaving
              ? 'saving…'
              : isChanged
                ? `unsaved changes, kept in this tab${hasCredentials ? ' without the credentials you typed' : ''}`
                : 'all changes saved'}
          </span>
        </>
      }
      actions={
        !locked && (
          <>
            <Button disabled={!history.past.length} onClick={history.undo}>
              Undo
            </Button>
            <Button disabled={!history.future.length} onClick={history.redo}>
              Redo
            </Button>
            {free && (
              <Button disabled={!check.positions} onClick={tidy}>
                Tidy up
              </Button>
            )}
            {isChanged && (
              <Confirm
                label="Discard changes"
                title="Discard changes?"
                isAsked={() => secret !== ''}
                disabled={saving.isSaving} // what it goes back to is not known before the answer
                act={async () => {
                  saving.discard()
                  setSelected(selected) // its form anew: what is typed there may stand in no definition
                }}
              >
                <p>Undo brings back what you drew, but not the signing secret that you typed.</p>
              </Confirm>
            )}
            {state === 'ACTIVE' ? (
              <Confirm
                id="save"
                label="Save"
                title="Save and go live?"
                sure="Save and go live"
                disabled={!isChanged}
                act={() => save()}
              >
                {follows}
              </Confirm>
            ) : (
              <>
                <Button id="save" class="primary" disabled={!isChanged} onClick={quietly}>
                  Save
                </Button>
                <Confirm
                  label={isChanged ? 'Save and activate' : 'Activate'}
                  title="Activate this flow?"
                  sure="Activate"
                  act={() => save('ACTIVE')}
                >
                  {follows}
                </Confirm>
              </>
            )}
          </>
        )
      }
    >
      <FlowTabs here={here} tab="edit" flow={id} />
      <Refused
        problem={problem}
        rest={unplaced(
          problem?.errors ?? [],
          check.findings.map(each => each.pointer),
        )}
      />
      {conflict && (
        <Later
          load={comparing}
          show={({ Conflict }) => (
            <Conflict
              mine={doc}
              base={saving.begun.doc}
              theirs={docOf(conflict.value)}
              at={conflict.value.updatedAt}
              all={all}
              keep={saving.keepMine}
              take={() => {
                saving.takeTheirs()
                setSelected(selected)
              }}
            />
          )}
        />
      )}
      {isVeiled && (
        <p class="note" role="status">
          Credentials you typed were not kept in this tab: type them again. Otherwise the stored ones stay.
        </p>
      )}
      <p class="unseen" role="status">
        {status}
      </p>
      <div class="editor">
        <div class="palette" ref={palette}>
          <Palette
            all={all}
            cards={seen.cards}
            card={card}
            spot={spot}
            free={free}
            locked={locked}
            marks={marks}
            add={add}
            addTrigger={addTrigger}
            focus={focus}
          />
        </div>
        <div class="canvas" role="region" aria-label="Flow diagram">
          <Canvas
            cards={seen.cards}
            links={seen.links}
            positions={positions}
            shown={shown}
            walked={play.walked}
            selected={selected}
            look={look}
            movable={free && !locked}
            select={setSelected}
            move={spots => history.edit(placed(doc, spots), `move ${Object.keys(spots).join()}`)}
            connect={(exit, target) => history.edit(connected(doc, exit, target))}
          />
        </div>
        <div class="side" ref={inspector}>
          <Views label="Beside the canvas" of={{ step: 'Form', simulate: 'Simulate' }} value={panel} set={setPanel} />
          {panel === 'simulate' ? (
            <Later
              load={simulating}
              show={({ Simulator }) => (
                <Simulator
                  of={of}
                  id={id}
                  tag={base.tag}
                  doc={doc}
                  edit={locked ? null : history.edit}
                  isChanged={isChanged}
                  entry={entry}
                  play={setPlay}
                  pick={each => {
                    setSelected([each])
                    setPanel('step')
                  }}
                />
              )}
            />
          ) : (
            <Errors problem={refusalOf(check.findings)}>
              <fieldset class="locked" disabled={locked}>
                {card ? (
                  <Inspector
                    key={form}
                    doc={doc}
                    card={card}
                    seen={seen}
                    all={all}
                    findings={check.findings}
                    free={free}
                    edit={history.edit}
                    aim={aim}
                    remove={() => remove([card.id])}
                    follow={follow}
                    of={of}
                    id={id}
                    secret={secret}
                    setSecret={setSecret}
                    hasSecret={base.value.trigger.signingSecretSet}
                  />
                ) : (
                  <>
                    <h2 tabIndex={-1}>Flow</h2>
                    <Field
                      label="Name"
                      value={doc.name}
                      set={name => history.edit({ ...doc, name }, 'name')}
                      pointer="/name"
                    />
                    <p class="hint">
                      Select a box on the canvas or a name beside it.{' '}
                      {free
                        ? 'Drag from a port to a box to connect them; double-click a line to remove it.'
                        : 'Branches rejoin at the next step.'}
                    </p>
                    <p class="hint">
                      Keys: Tab and Enter select; arrows move{free ? ' a box' : '; with Alt, a step up or down'};
                      Delete, Ctrl+C, Ctrl+X, Ctrl+V, Ctrl+Z, Ctrl+Shift+Z, Ctrl+S.
                    </p>
                  </>
                )}
              </fieldset>
            </Errors>
          )}
        </div>
      </div>
      <Findings of={check} isNew={check.of === doc} locate={locate} focus={focus} />
    </Screen>
  )
}

/** What a version is of. */
const bodyOf = (doc: Doc) => {
  const { name: _, casesGate: __, ...rest } = written(doc)
  return rest
}

/** What saving or activating will do, before it is done. */
function WhatFollows({ base, doc, errors }: { base: Stored & { doc: Doc }; doc: Doc; errors: number }) {
  const { stats, version } = base.value
  const isNew = !version || !same(bodyOf(doc), bodyOf(base.doc))
  const stay = underWay(stats.underWay, 'stays on its version', 'stay on their version')
  return (
    <>
      {errors > 0 && <p class="wrong">{plural(errors, 'error')} found; until fixed, this will be refused.</p>}
      <p>
        {isNew ? `Its content becomes version ${version + 1}.` : `Its content stays version ${version}.`} From then on,
        runs{isNew ? ' of the new version' : ''} are started by {occasion(doc.trigger)}.
      </p>
      {stay && isNew && <p>{stay}.</p>}
    </>
  )
}

/** What a card is set to do, in a few words. */
function says({ kind, members }: Card, names: Map<string, string>): string {
  const text = (value: unknown) => (typeof value === 'string' || isNumber(value) ? textOf(value) : '')
  const of = (name: string) => text(members[name])
  const first = (name: string) => (Array.isArray(members[name]) ? ((members[name][0] as Json | undefined) ?? {}) : {})
  const inside = (name: string, inner: string) => text((members[name] as Json | null | undefined)?.[inner])
  switch (kind) {
    case TRIGGER:
      return occasion(members)
    case 'send_message':
      return (
        names.get(of('templateId')) ??
        (inside('content', 'subject') || inside('content', 'text') || of('templateId') || of('channel'))
      )
    case 'wait':
      return spelled(of('duration')) || of('until') || of('time')
    case 'wait_for':
      return [text(first('conditions').event), spelled(of('after') || of('timeout'))].filter(Boolean).join(', or ')
    case 'branch':
      return inside('cases', '0') || text((first('cases').when as Json | undefined)?.path)
    case 'throttle':
      return `${of('limit')} in ${spelled(of('window'))}`
    case 'update_contact':
      return Object.keys(isObject(members.set) ? members.set : {}).join(', ')
    case 'http_request':
      return `${of('method')} ${
        of('url')
          .replace(/\/\/[^/]*@/, '//')
          .split('?')[0]
      }`
    case 'start_workflow':
      return of('workflowId') || of('automationId')
    default:
      return of('tag') || of('reason')
  }
}
