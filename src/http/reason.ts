/** The most characters of a text in a status line or a header. */
const max = 400;

/** Text for a reason phrase or a header: one line of ASCII, up to 400 characters. Other characters become `?`. */
export function oneLine(text: string): string {
  return text
    .slice(0, 4 * max)
    .replace(/\s+/g, ' ')
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, max);
}
