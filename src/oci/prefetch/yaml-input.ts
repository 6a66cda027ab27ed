import {
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  parseAllDocuments,
  type Document,
  type Node,
  type YAMLMap,
} from 'yaml';
import { malformed } from '../../prefetch/item.ts';

/** Most levels of nested merge keys. */
const deepest = 8;

/** The documents of a YAML file, with the lines of their nodes. */
export class YamlInput {
  readonly file: string;
  readonly documents: readonly Document[];
  readonly #lines = new LineCounter();

  constructor(file: string, text: string) {
    this.file = file;
    let documents: ReturnType<typeof parseAllDocuments>;
    try {
      documents = parseAllDocuments(text, {
        lineCounter: this.#lines,
        merge: true,
        uniqueKeys: false,
        logLevel: 'silent',
      });
    } catch (error) {
      // Deep nesting overflows the stack of the parser.
      throw malformed(file, 1, `cannot be read as YAML: ${(error as Error).message.split('\n', 1)[0]}`);
    }
    this.documents = documents;
    for (const { errors } of this.documents) {
      const [error] = errors;
      if (!error) continue;
      const templated = text.includes('{{') ? ' (render the template first)' : '';
      const reason = error.message.split('\n', 1)[0]!.replace(/ at line \d+, column \d+:/, '');
      throw malformed(file, error.linePos?.[0].line ?? 1, `not YAML: ${reason}${templated}`);
    }
  }

  /** The line of a node. */
  lineOf(node: unknown): number {
    const range = (node as Node | undefined)?.range;
    return range ? this.#lines.linePos(range[0]).line : 1;
  }

  /** The node itself, or the node that an alias refers to. */
  resolve(document: Document, node: unknown): unknown {
    return isAlias(node) ? node.resolve(document) : node;
  }

  /** The value of `key`, also from merged mappings (`<<`). */
  field(document: Document, map: YAMLMap, key: string, depth = 0): unknown {
    let merged: unknown;
    for (const { key: name, value } of map.items) {
      if (!isScalar(name)) continue;
      if (name.value === key) return this.resolve(document, value);
      if (name.source === '<<') merged = this.resolve(document, value);
    }
    if (depth === deepest) return undefined;
    for (const each of isSeq(merged) ? merged.items : [merged]) {
      const source = this.resolve(document, each);
      const found = isMap(source) ? this.field(document, source, key, depth + 1) : undefined;
      if (found !== undefined) return found;
    }
    return undefined;
  }
}
