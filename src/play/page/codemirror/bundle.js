export { EditorState, StateEffect, StateField, Compartment } from '@codemirror/state';
export { EditorView, keymap, lineNumbers, drawSelection, highlightActiveLine, highlightActiveLineGutter, hoverTooltip, Decoration, ViewPlugin } from '@codemirror/view';
export { defaultKeymap, history, historyKeymap, indentWithTab, toggleComment } from '@codemirror/commands';
export { StreamLanguage, HighlightStyle, syntaxHighlighting, bracketMatching, indentUnit } from '@codemirror/language';
export { setDiagnostics, lintGutter, lintKeymap } from '@codemirror/lint';
export { autocompletion, completionKeymap } from '@codemirror/autocomplete';
export { tags } from '@lezer/highlight';
