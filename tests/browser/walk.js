// Begins to record where the focus goes, for a walk by Tab through what `within` selects; `walk.found()` says what was wrong with it.
within => {
  const CONTROLS = 'a, button, input, select, textarea, summary, [contenteditable=true], [tabindex="0"], [role=button], [role=link]'
  const LINES = '.react-flow__edge' // what a mouse does to them, the form of a box does too
  const STYLES = ['outlineStyle', 'outlineWidth', 'outlineColor', 'boxShadow', 'borderTopColor', 'backgroundColor', 'stroke', 'left', 'top']
  const MOST = 20 // elements in a control that may show its focus

  // In the order of the document; a shadow root stands in the place of its host, and a frame is a document of its own.
  const all = root => [...root.children].flatMap(one => [one, ...(one.shadowRoot ? all(one.shadowRoot) : []), ...all(one)])
  const isThere = one => one.checkVisibility({ visibilityProperty: true }) && !one.matches(':disabled') && !one.closest('[aria-hidden=true]')
  const look = one => [one.closest('.cm-editor') ?? one, ...one.querySelectorAll('*')].slice(0, MOST).map(each => {
    const style = getComputedStyle(each)
    return STYLES.map(name => style[name]).join()
  }).join()
  const html = one => one.outerHTML.replace(/\s+/g, ' ').slice(0, 120)

  // Of a table, the first rows: each further one has the same controls.
  const rows = new CSSStyleSheet()
  rows.replaceSync('tbody tr:nth-child(n + 6) { display: none }')
  document.adoptedStyleSheets.push(rows)

  const root = document.querySelector(within), isPart = root !== document.body
  const everything = all(root)
  const controls = everything.filter(one => one.matches(CONTROLS) && isThere(one))
  const before = new Map(controls.map(one => [one, look(one)]))
  const reached = new Set(), unseen = []
  let isRound = false
  const onFocus = event => {
    if (isPart && (isRound ||= !root.contains(event.target))) return // it ends where it is left
    const one = event.composedPath()[0]
    if (reached.values().next().value === one) isRound = true
    if (!reached.has(one) && look(one) === before.get(one)) unseen.push(one)
    reached.add(one)
  }
  const end = () => {
    removeEventListener('focusin', onFocus, true)
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(each => each !== rows)
  }
  const found = () => {
    const places = [...reached].map(one => controls.indexOf(one)).filter(place => place >= 0)
    const back = places.filter((place, index) => index && place < places[index - 1]).slice(isPart ? 0 : 1) // once, from the last to the first
    const idle = everything.filter(one => getComputedStyle(one).cursor === 'pointer' && isThere(one) && !one.closest(`${CONTROLS}, label, ${LINES}`))
    const wrong = [
      ...unseen.map(one => `shows no focus: ${html(one)}`),
      ...controls.filter(one => !reached.has(one)).map(one => `cannot be reached: ${html(one)}`),
      ...back.map(place => `is out of order: ${html(controls[place])}`),
      ...idle.map(one => `takes a click and no focus: ${html(one)}`),
    ]
    end()
    return wrong
  }
  window.walk?.end()
  if (isPart) root.focus()
  addEventListener('focusin', onFocus, true)
  window.walk = { isRound: () => isRound, found, end }
  return [controls.length, everything.some(one => one.matches('.cm-content'))]
}
