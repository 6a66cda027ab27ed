import type { Terminal } from './with-installation.ts';

/** Control characters, and the characters that change the direction of text or end a line. */
const hidden = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu;

/** Text of clients or upstreams for one place of a line, with characters that a terminal would act on as `\u001b`. */
export function shown(text: string): string {
  return text.replaceAll(hidden, encoded);
}

/** One word of a shell. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A line of columns, each as `shown` has it. */
export function row(...columns: readonly (string | number)[]): string {
  return `${columns.map((each) => shown(String(each))).join('\t')}\n`;
}

/**
 * The terminal for what commands print: names in it may be those of clients and upstreams. Tabs and ends of lines stay, because
 * they separate columns and lines. `screen` is the error output itself.
 */
export function safe(terminal: Terminal): Terminal {
  const { stdout, stderr, stdin } = terminal;
  return {
    stdout: withoutControls(stdout),
    stderr: withoutControls(stderr),
    screen: stderr,
    ...(stdin && { stdin }),
    once: (event, listener) => terminal.once(event, listener),
    on: (event, listener) => terminal.on(event, listener),
    exit: (code) => terminal.exit(code),
  };
}

function withoutControls(output: Terminal['stdout']): Terminal['stdout'] {
  return {
    write: (text) => output.write(text.replaceAll(hidden, keepLayout)),
    on: (event, listener) => output.on?.(event, listener),
  };
}

function encoded(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

function keepLayout(character: string): string {
  return character === '\n' || character === '\t' ? character : encoded(character);
}
