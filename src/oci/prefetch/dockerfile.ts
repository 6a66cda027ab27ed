import { parsePlatform } from '../../prefetch/platform.ts';
import { parseImageName } from './image-name.ts';
import { substitute } from './substitute.ts';
import { malformed, firstLine, type Input } from '../../prefetch/item.ts';
import type { OciItem } from './image-item.ts';

// https://docs.docker.com/reference/dockerfile/

const instructions = new Set(
  'ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM HEALTHCHECK LABEL MAINTAINER ONBUILD RUN SHELL STOPSIGNAL USER VOLUME WORKDIR'.split(
    ' ',
  ),
);

interface Instruction {
  line: number;
  name: string;
  rest: string;
}

/**
 * The images that a build starts from or copies from, and the frontend in a `# syntax=` line. Stages are not images. Build
 * arguments have their defaults, or the values from the user.
 */
export function readDockerfile({ file, text, values }: Input): OciItem[] {
  const { directives, instructions: list } = split(file, text);
  const items: OciItem[] = [];
  const stages = new Set<string>();
  const globals = new Map<string, string>();
  let locals = new Map<string, string>();
  let count = 0;

  const add = (line: number, written: string, scope: ReadonlyMap<string, string>, platform?: string) => {
    const location = { file, line };
    const lookup = (name: string) => values.get(name) ?? scope.get(name);
    const { value, reason } = substitute(written, lookup);
    if (reason !== undefined) {
      items.push({ location, kind: 'unclear', what: written, reason });
      return;
    }
    const isStage = stages.has(value.toLowerCase()) || (/^\d+$/.test(value) && Number(value) < count);
    if (isStage || value === 'scratch') return;
    const image = parseImageName(value);
    if (!image) throw malformed(file, line, `${firstLine(value)} is not an image name`);
    // Variables such as $BUILDPLATFORM have no fixed value.
    const fixed = platform === undefined ? undefined : substitute(platform, lookup).value;
    const parsed = fixed === undefined ? undefined : parsePlatform(fixed);
    if (fixed !== undefined && !parsed)
      throw malformed(file, line, `${firstLine(fixed)} is not a platform such as linux/amd64`);
    items.push({ location, kind: 'image', image, ...(parsed && { platforms: [parsed] }) });
  };

  const syntax = directives.get('syntax');
  if (syntax) add(syntax.line, syntax.value, new Map());
  for (const { line, name, rest } of list) {
    if (name === 'ARG') {
      for (const [key, value] of defaultsOf(rest)) {
        // In a stage, an argument without a default takes the value of the global one.
        const scope = count === 0 ? globals : locals;
        const found =
          value === undefined
            ? globals.get(key)
            : substitute(value, (each) => values.get(each) ?? scope.get(each)).value;
        if (found !== undefined) scope.set(key, found);
      }
    } else if (name === 'FROM') {
      const from = readFrom(file, line, rest);
      add(line, from.image, globals, from.platform);
      if (from.stage !== undefined) stages.add(from.stage.toLowerCase());
      count += 1;
      locals = new Map();
    } else if (count === 0) {
      throw malformed(file, line, `${name} is before the first FROM`);
    } else {
      for (const source of sourcesOf(name, rest)) add(line, source, locals);
    }
  }
  if (count === 0) throw malformed(file, list.at(-1)?.line ?? 1, 'FROM is missing');
  return items;
}

function readFrom(file: string, line: number, rest: string): { image: string; platform?: string; stage?: string } {
  const words = rest.split(/\s+/);
  let platform: string | undefined;
  while (words[0]?.startsWith('--')) {
    const flag = words.shift()!;
    if (!flag.startsWith('--platform=')) throw malformed(file, line, `FROM has no flag ${firstLine(flag)}`);
    platform = unquote(flag.slice('--platform='.length));
  }
  const [image = '', as, stage, ...others] = words;
  if (image === '') throw malformed(file, line, 'FROM has no image');
  if (as !== undefined && (as.toLowerCase() !== 'as' || stage === undefined || others.length > 0)) {
    throw malformed(file, line, 'expected FROM image [AS stage]');
  }
  return { image: unquote(image), ...(platform !== undefined && { platform }), ...(stage !== undefined && { stage }) };
}

/** The images or stages that an instruction copies or mounts from. */
function sourcesOf(name: string, rest: string): string[] {
  const inner = name === 'ONBUILD' ? /^(\w+)\s+([^]*)/.exec(rest) : undefined;
  // ONBUILD cannot trigger another ONBUILD.
  if (inner) return inner[1]!.toUpperCase() === 'ONBUILD' ? [] : sourcesOf(inner[1]!.toUpperCase(), inner[2]!);
  const found: string[] = [];
  for (const flag of rest.split(/\s+/)) {
    if (!flag.startsWith('--')) break;
    if (name === 'COPY' && flag.startsWith('--from=')) found.push(flag.slice('--from='.length));
    if (name !== 'RUN' || !flag.startsWith('--mount=')) continue;
    const from = flag
      .slice('--mount='.length)
      .split(',')
      .find((each) => each.startsWith('from='));
    if (from) found.push(from.slice('from='.length));
  }
  return found.map(unquote).filter((each) => each !== '');
}

function defaultsOf(rest: string): [string, string | undefined][] {
  const found = rest.matchAll(/([A-Za-z_]\w*)(?:=((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'])*))?(?=\s|$)/g);
  return [...found].map(([, key, value]) => [key!, value === undefined ? undefined : unquote(value)]);
}

function unquote(text: string): string {
  const match = /^(["'])([^]*)\1$/.exec(text);
  return match ? match[2]! : text;
}

/** The directives at the top, and the instructions with continued lines joined, without comments and here-documents. */
function split(file: string, text: string) {
  const lines = text.replace(/^\uFEFF/, '').split(/\r?\n/);
  const directives = new Map<string, { value: string; line: number }>();
  const found: Instruction[] = [];
  let at = 0;
  for (const each of lines) {
    const directive = /^#\s*([a-z]+)\s*=\s*(\S+)\s*$/i.exec(each);
    if (!directive) break;
    at += 1;
    directives.set(directive[1]!.toLowerCase(), { value: directive[2]!, line: at });
  }
  const escape = directives.get('escape')?.value === '`' ? '`' : '\\';
  while (at < lines.length) {
    const line = at + 1;
    let whole = lines[at]!.trim();
    at += 1;
    if (whole === '' || whole.startsWith('#')) continue;
    while (whole.endsWith(escape) && at < lines.length) {
      const next = lines[at]!.trim();
      at += 1;
      if (next === '' || next.startsWith('#')) continue;
      whole = `${whole.slice(0, -1)} ${next}`;
    }
    if (whole.endsWith(escape)) whole = whole.slice(0, -1);
    const name = whole.split(/\s/, 1)[0]!.toUpperCase();
    if (!instructions.has(name))
      throw malformed(file, line, `${firstLine(whole)} is not an instruction of a Dockerfile`);
    const rest = whole.slice(name.length).trim();
    found.push({ line, name, rest });
    if (['RUN', 'COPY', 'ADD', 'ONBUILD'].includes(name)) at = afterHereDocuments(lines, at, rest);
  }
  return { directives, instructions: found };
}

/** The line after the here-documents of an instruction. Ignores a here-document that does not end. */
function afterHereDocuments(lines: readonly string[], start: number, rest: string): number {
  let at = start;
  for (const word of rest.split(/\s/)) {
    const match = /^\d*<<(-?)(["']?)([^<"'\s]+)\2$/.exec(word);
    if (!match) continue;
    const end = lines.findIndex(
      (each, index) => index >= at && (match[1] ? each.replace(/^\t+/, '') : each) === match[3],
    );
    if (end >= 0) at = end + 1;
  }
  return at;
}
