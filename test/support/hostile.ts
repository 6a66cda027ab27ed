// Texts that a package or an image may contain, and that must never become HTML, a script or a link.

export const hostile = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "' onmouseover='alert(1)",
  '</title></textarea><svg/onload=alert(1)>',
  'javascript:alert(1)',
  '\u202Etxt.exe&lt;script&gt;',
] as const;

/** The parts of a page by which a hostile text could act; empty for a safe page. */
export function dangers(page: string): string[] {
  // A plot of downloads, which appears once they are counted.
  const withoutPlots = page.replaceAll(
    /<svg class="spark" role="img" viewBox="0 0 \d+ \d+">|<path d="(?:M\d+ \d+v-\d+)+" \/>/g,
    '',
  );
  const tags = [...withoutPlots.matchAll(/<([a-z][a-z0-9]*)((?:\s+[\w-]+(?:="[^"]*")?)*)\s*\/?>/gi)];
  const allowed =
    /^(?:html|head|meta|title|link|script|body|a|header|form|label|input|button|nav|ul|ol|li|main|h[1-6]|p|div|section|span|strong|code|pre|br|table|thead|tbody|tr|th|td|dl|dt|dd|details|summary|select|option|time|footer|em|blockquote|s|hr|fieldset|legend)$/i;
  const found = tags.flatMap(([tag, name = '', attributes = '']) => [
    ...(allowed.test(name) ? [] : [tag]),
    ...(/\s(?:on\w+|style|srcdoc)=/i.test(attributes.replaceAll(/="[^"]*"/g, '=')) ? [tag] : []),
    ...(/\s(?:href|src|action|formaction)="(?!https?:\/\/|\/|#|")/i.test(attributes) ? [tag] : []),
  ]);
  const scripts = page.match(/<script\b/gi)?.length ?? 0;
  if (scripts !== 1) found.push(`${scripts} scripts`);
  return found;
}
