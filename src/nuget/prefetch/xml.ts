import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { lineAt, malformed } from '../../prefetch/item.ts';

/** An XML element. Its only key besides `:@` (its attributes) is its name. */
export type Ordered = { readonly [name: string]: readonly Ordered[] | string | Record<string, string> | undefined };

const position = XMLParser.getMetaDataSymbol() as unknown as symbol;
const parser = new XMLParser({
  preserveOrder: true,
  ignoreAttributes: false,
  attributeNamePrefix: '',
  captureMetaData: true,
  parseTagValue: false,
  parseAttributeValue: false,
  maxNestedTags: 64,
});

/** The element `<name>` of an XML file. Throws `Invalid` with file, line and reason. */
export function parseProjectXml(file: string, text: string, name: string): Ordered {
  if (/<!(?:DOCTYPE|ENTITY)/i.test(text)) {
    throw malformed(
      file,
      lineAt(text, text.search(/<!(?:DOCTYPE|ENTITY)/i)),
      'has a document type declaration, which is not supported; remove it',
    );
  }
  const plain = text.replace(/^\uFEFF/, ' ');
  const valid = XMLValidator.validate(plain.trimStart());
  if (valid !== true) {
    const before = lineAt(plain, plain.length - plain.trimStart().length) - 1;
    throw malformed(file, before + valid.err.line, `not XML: ${valid.err.msg}`);
  }
  let found: Ordered[];
  try {
    found = parser.parse(plain) as Ordered[];
  } catch (error) {
    throw malformed(file, 1, `the XML cannot be read: ${(error as Error).message}`);
  }
  const root = found.find((each) => nameOf(each) === name);
  if (!root) throw malformed(file, 1, `expected a <${name}>`);
  return root;
}

export function nameOf(element: Ordered): string {
  return Object.keys(element).find((key) => key !== ':@') ?? '';
}

export function childrenOf(element: Ordered): readonly Ordered[] {
  const found = element[nameOf(element)];
  return Array.isArray(found) ? (found as readonly Ordered[]) : [];
}

/** The text in an element. */
export function elementText(element: Ordered): string {
  return childrenOf(element)
    .map((each) => (typeof each['#text'] === 'string' ? each['#text'] : ''))
    .join('')
    .trim();
}

/** The position in the text. */
export function startOf(element: Ordered): number {
  return (Reflect.get(element, position) as { startIndex?: number } | undefined)?.startIndex ?? 0;
}

/** The value of an attribute, or the text of a child element; the name is in lower case. */
export function metadataValue(item: Ordered, name: string): string | undefined {
  for (const [key, value] of Object.entries(item[':@'] ?? {})) {
    if (key.toLowerCase() === name) return (value as string).trim();
  }
  const child = childrenOf(item).find((each) => nameOf(each).toLowerCase() === name);
  return child && elementText(child);
}
