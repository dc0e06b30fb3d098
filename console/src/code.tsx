// A box for code: a plain text area until the code editor is loaded, and for good where it cannot be.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { CodeEditor, codeEditor } from './code_editor'
import { useErrors } from './errors'
import { Button, Field, Findings } from './ui'

const load = () => import('./code_editor')

interface Finding {
  severity: string
  pointer: string
  message: string
}
interface Found {
  severity: string
  message: string
  line: number | null
}
/** How the editor is made, and what it takes over from the text area. */
interface Start {
  make: typeof codeEditor
  from: number
  to: number
  hasFocus: boolean
}
interface Props {
  label: string
  value: string
  set: (value: string) => void
  rows: number
  isMarkup: boolean
  pointer: string
  findings: readonly Finding[]
}

/** The line that a finding is about: the one it names, or the first that has what it quotes. */
function lineOf(message: string, text: string): number | null {
  const named = /\(line (\d+), column \d+\)/.exec(message)
  if (named) return Number(named[1])
  const quoted = /“([^”…]+)/.exec(message)?.[1]
  const at = quoted ? text.indexOf(quoted) : -1
  return at < 0 ? null : text.slice(0, at).split('\n').length
}

const isPlaced = (found: Found): found is Found & { line: number } => found.line !== null

export function Code(props: Props) {
  const { label, value, set, rows, pointer, findings } = props
  useErrors(pointer) // which the editor shows with their lines
  const box = useRef<HTMLDivElement>(null)
  const isComposing = useRef(false)
  const [start, setStart] = useState<Start | null>(null)
  const [isMissing, setMissing] = useState(false)
  useEffect(() => {
    let left = false
    void load().then(
      function place({ codeEditor: make }) {
        const plain = box.current?.querySelector('textarea')
        if (left || !plain) return
        if (isComposing.current)
          plain.addEventListener('compositionend', () => place({ codeEditor: make }), { once: true })
        else
          setStart({
            make,
            from: plain.selectionStart,
            to: plain.selectionEnd,
            hasFocus: document.activeElement === plain,
          })
      },
      () => {
        if (!left) setMissing(true)
      },
    )
    return () => {
      left = true
    }
  }, [])
  return (
    <div
      class="code"
      ref={box}
      onCompositionStart={() => {
        isComposing.current = true
      }}
      onCompositionEndCapture={() => {
        isComposing.current = false
      }}
    >
      {start ? (
        <Rich {...props} start={start} />
      ) : (
        <>
          <Field
            label={label}
            rows={rows}
            value={value}
            set={set}
            pointer={pointer}
            hint={isMissing ? 'The code editor could not be loaded; this plain box works the same.' : undefined}
          />
          <Findings of={findings.filter(each => each.pointer === pointer && each.severity !== 'error')} />
        </>
      )}
    </div>
  )
}

function Rich({ label, value, set, rows, isMarkup, pointer, findings, start }: Props & { start: Start }) {
  const host = useRef<HTMLDivElement>(null),
    hint = useRef<HTMLParagraphElement>(null),
    list = useRef<HTMLDivElement>(null)
  const editor = useRef<CodeEditor | null>(null)
  const changed = useRef(set)
  changed.current = set
  useLayoutEffect(() => {
    const { make, hasFocus, ...selection } = start
    const made = make(host.current!, {
      label,
      value,
      rows,
      isMarkup,
      ...selection,
      described: [hint.current!, list.current!],
      changed: text => changed.current(text),
    })
    editor.current = made
    if (hasFocus) made.focus()
    return () => made.remove()
  }, [])
  useLayoutEffect(() => editor.current?.show(value), [value])
  // Lines of the text as it was when this was found; the marks in the editor move with what is typed afterwards.
  const found = useMemo(
    () =>
      findings
        .filter(each => each.pointer === pointer)
        .map(({ severity, message }): Found => ({ severity, message, line: lineOf(message, value) })),
    [findings],
  )
  const isInvalid = found.some(each => each.severity === 'error')
  useLayoutEffect(() => editor.current?.remark(found.filter(isPlaced), isInvalid), [found])
  return (
    <div class="field">
      <span class="label" onClick={() => editor.current?.focus()}>
        {label}
      </span>
      <div ref={host} class="host" data-invalid={isInvalid || undefined} />
      <div ref={list}>
        <Findings
          of={found}
          at={({ line }) =>
            line && (
              <Button class="plain" onClick={() => editor.current?.goTo(line)}>
                line {line}
              </Button>
            )
          }
        />
      </div>
      <p class="hint" ref={hint}>
        Tab indents. To leave the box, press Escape, then Tab.
      </p>
    </div>
  )
}
