// The keyboard and the clipboard of the editor.
import { useEffect, useRef } from 'preact/hooks'

/** What keys and the clipboard do; null is what cannot be done now. */
interface Acts {
  undo: () => void
  redo: () => void
  remove: (() => void) | null
  move: ((by: -1 | 1) => void) | null
  copy: () => string
  cut: () => void
  paste: (text: string) => void
  say: (what: string) => void
}

const TYPING = 'input, textarea, select, dialog'
const closest = (event: Event, selector: string) => (event.target as Element | null)?.closest?.(selector)

/** While nothing is typed, but for Ctrl+S. */
export function useKeys(locked: boolean, acts: Acts) {
  const live = useRef(acts)
  live.current = acts
  useEffect(() => {
    const clipboard = (event: ClipboardEvent) => {
      const { copy, cut, paste, say } = live.current
      if (closest(event, TYPING) || !getSelection()?.isCollapsed) return
      if (event.type === 'paste') {
        const text = event.clipboardData?.getData('text/plain') ?? ''
        if (locked || !text.includes('"tidings"')) return
        paste(text)
      } else {
        const text = copy()
        if (!text) return
        event.clipboardData?.setData('text/plain', text)
        say('Copied.')
        if (event.type === 'cut' && !locked) cut()
      }
      event.preventDefault()
    }
    const key = (event: KeyboardEvent) => {
      if (locked || !isMeant(event, live.current)) return
      event.preventDefault()
      event.stopPropagation()
    }
    const types = ['copy', 'cut', 'paste'] as const
    types.forEach(type => document.addEventListener(type, clipboard))
    document.addEventListener('keydown', key, true)
    return () => {
      types.forEach(type => document.removeEventListener(type, clipboard))
      document.removeEventListener('keydown', key, true)
    }
  }, [locked])
}

/** Does what the key means; whether it means anything. */
function isMeant(event: KeyboardEvent, { undo, redo, remove, move }: Acts): boolean {
  const isHere = event.target === document.body || closest(event, '.canvas, .outline') // elsewhere the key means nothing
  const hasControl = event.ctrlKey || event.metaKey
  const pressed = event.key.toLowerCase()
  if (hasControl && pressed === 's') save()
  else if (closest(event, TYPING) !== null) return false
  else if (hasControl && pressed === 'z' && !event.shiftKey) undo()
  else if (hasControl && (pressed === 'y' || pressed === 'z')) redo()
  else if ((pressed === 'delete' || pressed === 'backspace') && remove && isHere) remove()
  else if (move && event.altKey && (pressed === 'arrowup' || pressed === 'arrowdown'))
    move(pressed === 'arrowup' ? -1 : 1)
  else return false
  return true
}

/** As the button does, which may ask first. */
function save() {
  const field = document.activeElement as HTMLElement | null
  field?.blur() // some take over what was typed once they are left
  field?.focus()
  requestAnimationFrame(() => {
    if (!document.querySelector('dialog[open]')) document.getElementById('save')?.click()
  })
}
