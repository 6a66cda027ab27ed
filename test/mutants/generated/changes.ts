import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Instrumenter } from '@stryker-mutator/instrumenter';
import type { Change } from './change.ts';
import { ownChanges } from './own.ts';
import { parse, traverse, types, type NodePath } from './tree.ts';

/** What the tests do not promise, and so no change is made there. */
export const leftOut = [
  'src/console/assets: scripts of browsers; test/console tests them, in another way of running',
  'src/database/migrations: their texts are fixed once they are released',
  'types, imports and decorators',
  'texts with a space in them (messages, HTML); in SQL only conditions change',
  'the arguments of a log line, and of a new error',
  'an await that is a statement: the lint refuses a promise that nobody awaits',
  'descriptions: properties named description, summary, title and example, and objects of them; calls of .description() and .describe()',
];
const skipped = ['src/console/assets/', 'src/database/migrations/'];
const describing = new Set(['description', 'summary', 'title', 'example', 'describe']);

/** The source files that are changed, relative to `root`, in order. */
export async function changeableFiles(root: string): Promise<string[]> {
  const files: string[] = [];
  for await (const each of glob('src/**/*.ts', { cwd: root })) files.push(each);
  return files.filter((each) => !skipped.some((folder) => each.startsWith(folder))).sort();
}

export async function changesOf(root: string, file: string): Promise<Change[]> {
  const source = await readFile(join(root, file), 'utf8');
  return changesOfText(file, source);
}

/** All changes of a source, in the order of their places. */
export async function changesOfText(file: string, source: string): Promise<Change[]> {
  const tree = parse(source);
  const quiet = placesOfDescriptions(tree);
  const made = [...(await changesOfLibrary(source, tree)), ...ownChanges(source, tree)];
  const known = new Set<string>();
  return made
    .filter(({ start, end, text, rule }) => {
      const key = `${start} ${end} ${text}`;
      const isNew = !known.has(key) && source.slice(start, end) !== text;
      known.add(key);
      return (
        isNew && !(rule === 'StringLiteral' && /\s/.test(source.slice(start, end))) && !isWithin(quiet, start, end)
      );
    })
    .map((each) => ({ file, ...each }))
    .sort((one, other) => one.start - other.start || other.end - one.end);
}

function isWithin(places: readonly types.Node[], start: number, end: number): boolean {
  return places.some((each) => each.start! <= start && end <= each.end!);
}

/** Nodes in which no change is made. */
function placesOfDescriptions(tree: types.File): types.Node[] {
  const places: types.Node[] = [];
  traverse(tree, {
    CallExpression({ node }) {
      if (!types.isMemberExpression(node.callee) || !types.isIdentifier(node.callee.property)) return;
      const method = node.callee.property.name;
      const object = node.callee.object;
      const owner = types.isIdentifier(object)
        ? object.name
        : types.isMemberExpression(object)
          ? nameOf(object.property)
          : '';
      const isLog = /^(?:trace|debug|info|warn|error|fatal)$/.test(method) && /^log(?:ger)?$|Log$/.test(owner);
      if (isLog || describing.has(method)) places.push(...node.arguments);
    },
    NewExpression({ node }) {
      if (types.isIdentifier(node.callee) && node.callee.name.endsWith('Error')) places.push(...node.arguments);
    },
    ObjectProperty({ node }) {
      if (isDescription(node)) places.push(node.value);
    },
    ObjectExpression({ node }) {
      if (node.properties.length > 0 && node.properties.every(isDescription)) places.push(node);
    },
  });
  return places;
}

function isDescription(node: types.Node): boolean {
  return types.isObjectProperty(node) && describing.has(nameOf(node.key));
}

function nameOf(node: types.Node): string {
  if (types.isIdentifier(node)) return node.name;
  return types.isPrivateName(node) ? node.id.name : '';
}

const silent = () => {};
const instrumenter = new Instrumenter({
  isTraceEnabled: () => false,
  isDebugEnabled: () => false,
  isInfoEnabled: () => false,
  isWarnEnabled: () => false,
  isErrorEnabled: () => false,
  isFatalEnabled: () => false,
  trace: silent,
  debug: silent,
  info: silent,
  warn: silent,
  error: silent,
  fatal: silent,
});

async function changesOfLibrary(source: string, tree: types.File): Promise<Omit<Change, 'file'>[]> {
  const files = [{ name: 'source.ts', mutate: true, content: withoutAssertions(source, tree) }];
  const { mutants } = await instrumenter.instrument(files, { plugins: null, ignorers: [], excludedMutations: [] });
  const starts = [0, ...[...source.matchAll(/\n/g)].map(({ index }) => index + 1)];
  return mutants.map(({ location: { start, end }, replacement, mutatorName: rule }) => ({
    start: starts[start.line]! + start.column,
    end: starts[end.line]! + end.column,
    text: bindsLess(replacement) ? `(${replacement})` : replacement,
    rule,
  }));
}

/** Whether a replacement binds less than what stood there may have to. */
function bindsLess(replacement: string): boolean {
  if (/^[\w.]*$|^\{|^\[[^]*\]$|^["`/]/.test(replacement)) return false;
  try {
    const [statement] = parse(`async () => (${replacement});`).program.body;
    if (!types.isExpressionStatement(statement) || !types.isArrowFunctionExpression(statement.expression)) return false;
    const { body } = statement.expression;
    return types.isBinary(body) || types.isConditionalExpression(body) || types.isAssignmentExpression(body);
  } catch {
    // A statement, or a case of a switch.
    return false;
  }
}

/** The text without `!` after an expression, which the library cannot read within `?.`; each is a space. */
function withoutAssertions(source: string, tree: types.File): string {
  const ends: number[] = [];
  traverse(tree, {
    TSNonNullExpression({ node }: NodePath<types.TSNonNullExpression>) {
      ends.push(node.end! - 1);
    },
  });
  const characters = source.split('');
  for (const each of ends) if (characters[each] === '!') characters[each] = ' ';
  return characters.join('');
}
