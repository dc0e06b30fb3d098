// CodeMirror, in a chunk of its own and in a shadow root: decision 0216 says why.
import { defaultKeymap, history, historyKeymap, indentWithTab, redo } from '@codemirror/commands'
import { html } from '@codemirror/lang-html'
import { syntaxHighlighting } from '@codemirror/language'
import { Compartment, EditorState, StateEffect, StateField } from '@codemirror/state'
import {
  Decoration,
  EditorView,
  MatchDecorator,
  ViewPlugin,
  keymap,
  lineNumbers,
  type DecorationSet,
  type ViewUpdate,
} from '@codemirror/view'

/** A finding, at its line. */
export interface Remark {
  line: number
  severity: string
  message: string
}

export interface Options {
  label: string
  value: string
  rows: number
  isMarkup: boolean
  /** The selection to begin with. */
  from: number
  to: number
  /** The elements outside that describe it. */
  described: readonly Element[]
  changed: (text: string) => void
}

export interface CodeEditor {
  /** Shows this text, unless it does already; the cursor stays where it is as far as it can. */
  show: (value: string) => void
  remark: (remarks: readonly Remark[], isInvalid: boolean) => void
  /** Puts the cursor at the beginning of a line. */
  goTo: (line: number) => void
  focus: () => void
  remove: () => void
}

const ESCAPE_MS = 60_000 // in which Tab leaves the editor after Escape, unless another key is pressed

// --- colours ---

/** Classes of what the parsers mark; the names are those of @lezer/highlight. */
const CLASSES: Record<string, string> = {
  tagName: 'name',
  className: 'name',
  keyword: 'name',
  attributeName: 'attribute',
  propertyName: 'attribute',
  attributeValue: 'text',
  string: 'text',
  number: 'text',
  unit: 'text',
  color: 'text',
  character: 'text',
  angleBracket: 'soft',
  documentMeta: 'soft',
  blockComment: 'soft',
  comment: 'soft',
  invalid: 'wrong',
}
const colours = syntaxHighlighting({ style: tags => tags.map(tag => CLASSES[String(tag)]).find(Boolean) ?? null })

const liquid = new MatchDecorator({
  regexp: /\{\{.*?\}\}|\{%.*?%\}/g,
  decoration: Decoration.mark({ class: 'liquid' }),
})
const marked = ViewPlugin.define(
  view => ({
    found: liquid.createDeco(view),
    update(update: ViewUpdate) {
      this.found = liquid.updateDeco(update, this.found)
    },
  }),
  { decorations: plugin => plugin.found },
)

/** By the variables of the page, which shadow roots inherit: light and dark follow by themselves. */
const theme = EditorView.theme({
  '&': {
    border: '1px solid var(--soft)',
    borderRadius: '.4rem',
    backgroundColor: 'var(--paper)',
    color: 'var(--ink)',
    fontSize: '.87rem',
  },
  '&.cm-focused, &:focus-within': { outline: '3px solid var(--accent)', outlineOffset: '2px' },
  '&:has([aria-invalid=true])': { borderColor: 'var(--bad)' },
  '.cm-scroller': {
    fontFamily: 'ui-monospace, "Cascadia Code", Menlo, Consolas, monospace',
    lineHeight: '1.5',
    maxHeight: '60vh',
    overflow: 'auto',
  },
  '@media (pointer: coarse)': { '.cm-scroller': { fontSize: '16px' } }, // as the fields of console.css
  '.cm-content': { caretColor: 'var(--ink)' },
  '.cm-gutters': {
    backgroundColor: 'var(--wash)',
    color: 'var(--soft)',
    border: 'none',
    borderRadius: '.4rem 0 0 .4rem',
  },
  '.name': { color: 'var(--accent)' },
  '.attribute': { color: 'var(--odd)' },
  '.text': { color: 'var(--good)' },
  '.soft': { color: 'var(--soft)' },
  '.wrong': { color: 'var(--bad)' },
  '.liquid, .liquid span': { color: 'var(--ink)', fontWeight: '600' },
  '.liquid': { backgroundColor: 'var(--wash)', boxShadow: '0 0 0 1px var(--line)', borderRadius: '.2rem' },
  // Not an element: selecting everything by the browser's own menu stops at one that cannot be edited.
  '.remark::after': {
    content: 'attr(data-remark)',
    display: 'block',
    whiteSpace: 'pre-wrap',
    font: '.88rem/1.4 system-ui, sans-serif',
    color: 'var(--odd)',
  },
  '.remark': { backgroundColor: 'var(--wash)', boxShadow: 'inset .25rem 0 var(--odd)' },
  '.remark.error::after': { color: 'var(--bad)' },
  '.remark.error': { boxShadow: 'inset .25rem 0 var(--bad)' },
})

// --- findings ---

const remarked = StateEffect.define<readonly Remark[]>()
const remarks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(before, { changes, effects, newDoc }) {
    const effect = effects.findLast(each => each.is(remarked))
    if (!effect) return before.map(changes)
    const at = new Map<number, Remark[]>()
    for (const each of effect.value as readonly Remark[]) {
      const { from } = newDoc.line(Math.max(1, Math.min(each.line, newDoc.lines)))
      at.set(from, [...(at.get(from) ?? []), each])
    }
    return Decoration.set(
      [...at].map(([from, found]) =>
        Decoration.line({
          class: found.some(each => each.severity === 'error') ? 'remark error' : 'remark',
          attributes: { 'data-remark': found.map(each => each.message).join('\n') },
        }).range(from),
      ),
      true,
    )
  },
  provide: field => EditorView.decorations.from(field),
})

// --- typing ---

/** Text over a selection. Chromium by itself would keep the colours of what it replaces by `style` attributes, which the policy blocks. */
const typing = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const chosen = (view.root as Document).getSelection?.() // Chromium's shadow roots have it; the editor's own may be a moment older
    if (
      event.inputType !== 'insertText' ||
      event.data === null ||
      view.composing ||
      !chosen?.anchorNode ||
      !chosen.focusNode ||
      chosen.isCollapsed
    )
      return false
    const ends = [
      view.posAtDOM(chosen.anchorNode, chosen.anchorOffset),
      view.posAtDOM(chosen.focusNode, chosen.focusOffset),
    ]
    const from = Math.min(...ends)
    view.dispatch({
      changes: { from, to: Math.max(...ends), insert: event.data },
      selection: { anchor: from + event.data.length },
      userEvent: 'input.type',
      scrollIntoView: true,
    })
    event.preventDefault()
    return true
  },
})

// --- the editor ---

/** The part of a text in which it differs from another, and what stands there in the other. */
function difference(old: string, next: string): { from: number; to: number; insert: string } {
  let from = 0,
    end = 0
  const most = Math.min(old.length, next.length)
  while (from < most && old[from] === next[from]) from++
  while (end < most - from && old[old.length - 1 - end] === next[next.length - 1 - end]) end++
  return { from, to: old.length - end, insert: next.slice(from, next.length - end) }
}

/** Makes an editor in the shadow root of `host`, whose event `insert` puts its detail where the cursor was. */
export function codeEditor(
  host: HTMLElement,
  { label, value, rows, isMarkup, from, to, described, changed }: Options,
): CodeEditor {
  const attributes = new Compartment()
  const attributed = (isInvalid: boolean) =>
    EditorView.contentAttributes.of({ 'aria-label': label, 'aria-invalid': String(isInvalid) })
  const root = host.attachShadow({ mode: 'open' })
  const doc = EditorState.create({ doc: value }).doc
  const view = new EditorView({
    parent: root,
    root,
    state: EditorState.create({
      doc,
      selection: { anchor: Math.min(from, doc.length), head: Math.min(to, doc.length) },
      extensions: [
        history(),
        lineNumbers(),
        EditorView.lineWrapping,
        colours,
        marked,
        remarks,
        typing,
        theme,
        isMarkup ? html() : [],
        EditorView.theme({ '.cm-content, .cm-gutter': { minHeight: `${rows * 1.5}em` } }),
        keymap.of([
          {
            key: 'Escape',
            run: editor => {
              editor.setTabFocusMode(ESCAPE_MS)
              return true
            },
          },
          { key: 'Mod-Shift-z', run: redo },
          indentWithTab,
          ...historyKeymap,
          ...defaultKeymap,
        ]),
        attributes.of(attributed(false)),
        EditorView.updateListener.of(update => {
          if (update.docChanged) changed(update.state.doc.toString())
        }),
      ],
    }),
  })
  view.contentDOM.ariaDescribedByElements = described
  host.addEventListener('insert', event => {
    view.dispatch(view.state.replaceSelection((event as CustomEvent<string>).detail))
    view.focus()
  })
  return {
    show(next) {
      const now = view.state.doc.toString(),
        text = next.replaceAll(/\r\n?/g, '\n')
      if (now !== text) view.dispatch({ changes: difference(now, text) })
    },
    remark: (found, isInvalid) =>
      view.dispatch({ effects: [remarked.of(found), attributes.reconfigure(attributed(isInvalid))] }),
    goTo(line) {
      const { from: anchor } = view.state.doc.line(Math.max(1, Math.min(line, view.state.doc.lines)))
      view.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: 'center' }) })
      view.focus()
    },
    focus: () => view.focus(),
    remove: () => view.destroy(),
  }
}
