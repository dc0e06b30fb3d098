// What is drawn of a flow: taken back, checked, kept in the tab, and saved.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import { api, got } from '../api'
import { parse, same } from '../exact'
import type { Kind } from '../names'
import { draftKey, Refusal } from '../session'
import type { Finding } from './form'
import { changeFlow, readFlow, veiled, type Kept, type Stored } from './kept'
import { docOf, written, type Doc, type Spot } from './model'

interface History {
  past: Doc[]
  now: Doc
  future: Doc[]
  label: string
  at: number
}

const PAUSE_MS = 1000 // between two keys, after which they are undone one by one

function useHistory(first: Doc) {
  const [history, setHistory] = useState<History>({ past: [], now: first, future: [], label: '', at: 0 })
  return {
    ...history,
    set: setHistory,
    /** Changes under the same label are undone at once if they follow each other soon, such as the letters of a word. */
    edit: (next: Doc, label = '') => {
      const at = Date.now()
      setHistory(old => ({
        past: label && label === old.label && at - old.at < PAUSE_MS ? old.past : [...old.past.slice(-199), old.now],
        now: next,
        future: [],
        label,
        at,
      }))
    },
    undo: () =>
      setHistory(old => {
        const last = old.past.at(-1)
        return last
          ? { past: old.past.slice(0, -1), now: last, future: [old.now, ...old.future], label: '', at: 0 }
          : old
      }),
    redo: () =>
      setHistory(old => {
        const [next, ...rest] = old.future
        return next ? { past: [...old.past, old.now], now: next, future: rest, label: '', at: 0 } : old
      }),
  }
}

interface Checked {
  of: Doc | null
  findings: Finding[]
  positions: Record<string, Spot> | null
}

/** What activation would say of the definition as it stands here, shortly after the last change. */
function useCheck(of: Kind, id: string, doc: Doc, first: Finding[]) {
  const [checked, setChecked] = useState<Checked>({ of: null, findings: first, positions: null })
  const [problem, setProblem] = useState<Refusal | null>(null)
  const turn = useRef(0)
  useEffect(() => {
    const mine = ++turn.current
    const timer = setTimeout(
      () => {
        const body = { params: { query: { id } }, body: written(doc) }
        void got<Omit<Checked, 'of'>>(api.POST(`/${of}/check`, body)).then(
          found => {
            if (mine !== turn.current) return
            setChecked(old => ({ of: doc, findings: found.findings, positions: found.positions ?? old.positions }))
            setProblem(null)
          },
          (error: Refusal) => {
            if (mine === turn.current) setProblem(error)
          },
        )
      },
      turn.current === 1 ? 0 : 300,
    )
    return () => clearTimeout(timer)
  }, [doc])
  return { ...checked, problem, refuse: (findings: Finding[]) => setChecked(old => ({ ...old, findings })) }
}

/** What is drawn of this flow, and its way to the service and back; `say` is heard. */
export function useSaving(of: Kind, id: string, stored: Stored, say: (what: string) => void) {
  const key = draftKey(`flow.${id}`)
  const [found] = useState(() => parse(sessionStorage.getItem(key) ?? 'null') as Kept | null)
  const [base, setBase] = useState({ ...stored, doc: docOf(stored.value) })
  const [kept] = useState(found && same(written(found.doc), written(base.doc)) ? null : found) // saved, and the page left before that was noted
  const [isVeiled, setVeiled] = useState(found?.isVeiled ?? false)
  const [behind, setBehind] = useState(kept && kept.tag !== stored.tag ? { tag: kept.tag, doc: kept.base } : null) // what is drawn here began at an older revision
  const begun = behind ?? base
  const held = useRef({ base, begun }) // for a save after the editor was left
  held.current = { base, begun }
  const [isSaving, setSaving] = useState(false)
  const [conflict, setConflict] = useState<Stored | null>(null)
  const [problem, setProblem] = useState<Refusal | null>(null)
  const [secret, setSecret] = useState('')
  const history = useHistory(kept?.doc ?? base.doc)
  const doc = history.now
  const isChanged = !same(written(doc), written(base.doc)) || secret !== ''
  const hasCredentials = useMemo(() => veiled(doc) !== JSON.stringify(doc), [doc]) || secret !== ''
  const check = useCheck(of, id, doc, stored.value.findings)

  // Before the page says that it is kept: an effect that still waits when somebody leaves never runs.
  useLayoutEffect(() => {
    try {
      if (isChanged)
        sessionStorage.setItem(
          key,
          veiled({ doc, tag: begun.tag, base: begun.doc, isVeiled: hasCredentials || isVeiled }),
        )
      else sessionStorage.removeItem(key)
    } catch {
      /* full: what is typed stays in the page */
    }
  }, [doc, secret, isChanged, begun])

  useEffect(() => setProblem(null), [doc, secret]) // what is still wrong is found again

  /** From now on what is drawn here is a change of this. */
  const settle = (now: Stored) => {
    const next = { ...now, doc: docOf(now.value) }
    held.current = { base: next, begun: next }
    setBase(next)
    setBehind(null)
    setConflict(null)
    return next
  }
  const store = async (state?: 'ACTIVE') => {
    if (!isChanged && !state) return // by the save before
    setProblem(null)
    const body = written(doc, held.current.base.doc)
    const trigger = secret ? { ...body.trigger, signingSecret: secret } : body.trigger
    const keep = (answer: Stored) => {
      const { doc: now } = settle(answer)
      history.set(old => (old.now === doc ? { ...old, now, label: '' } : old))
      setSecret(typed => (typed === secret ? '' : typed))
      setVeiled(false)
      say('Saved.')
    }
    try {
      keep(await changeFlow(of, id, held.current.begun.tag, { ...body, trigger, ...(state ? { state } : {}) }))
    } catch (error) {
      if (!(error instanceof Refusal)) throw error
      if (error.status === 412) {
        const theirs = await readFlow(of, id)
        // What stands there as it is here was our own save, whose answer was lost.
        return same(written(docOf(theirs.value)), written(doc)) && !secret && (!state || theirs.value.state === state)
          ? keep(theirs)
          : setConflict(theirs)
      }
      if (error.errors.length)
        check.refuse(error.errors.map(each => ({ ...each, severity: 'error', code: error.code })))
      setProblem(error)
      throw error
    }
  }
  const latest = useRef(store)
  latest.current = store
  const last = useRef(Promise.resolve())
  /** One at a time, each of what is drawn once the one before was answered. */
  const save = (state?: 'ACTIVE') => {
    setSaving(true)
    const mine = last.current
      .catch(() => {})
      .then(() => latest.current(state))
      .finally(() => setSaving(mine !== last.current))
    return (last.current = mine)
  }
  return {
    history,
    check,
    base,
    begun,
    secret,
    setSecret,
    isChanged,
    isVeiled,
    hasCredentials,
    isSaving,
    problem,
    setProblem,
    save,
    discard: () => {
      history.edit((conflict ? settle(conflict) : base).doc)
      setBehind(null)
      setSecret('')
      setVeiled(false)
    },
    conflict,
    keepMine: () => {
      settle(conflict!)
      say('Save again to replace theirs.')
    },
    takeTheirs: () => {
      history.edit(settle(conflict!).doc)
      say('This is theirs. Undo brings yours back.')
    },
  }
}
