import type { Change } from './change.ts';
import { parse, traverse, types, type NodePath } from './tree.ts';

/** A part of a source of which a run can record that it was reached. */
export interface Place {
  start: number;
  end: number;
  kind: 'statement' | 'body' | 'expression';
}

/** The parts of a source that can be reached each by itself: statements, bodies and branches of expressions. */
export function placesOf(source: string): Place[] {
  const places: Place[] = [];
  const add = (node: types.Node | null | undefined, kind: Place['kind']): void => {
    if (node) places.push({ start: node.start!, end: node.end!, kind });
  };
  const addBody = (node: types.Node | null | undefined): void => {
    if (node && !types.isBlockStatement(node)) add(node, 'body');
  };
  const addList = (statements: readonly types.Statement[]): void => {
    for (const each of statements) if (isRun(each)) add(each, 'statement');
  };
  traverse(parse(source), {
    'Program|BlockStatement|StaticBlock'({ node }: NodePath<types.Program | types.BlockStatement | types.StaticBlock>) {
      addList(node.body);
    },
    SwitchCase: ({ node }) => addList(node.consequent),
    IfStatement({ node }) {
      addBody(node.consequent);
      addBody(node.alternate);
    },
    Loop: ({ node }) => addBody(node.body),
    ArrowFunctionExpression({ node }) {
      if (!types.isBlockStatement(node.body)) add(node.body, 'expression');
    },
    ConditionalExpression({ node }) {
      add(node.consequent, 'expression');
      add(node.alternate, 'expression');
    },
    LogicalExpression: ({ node }) => add(node.right, 'expression'),
    AssignmentPattern: ({ node }) => add(node.right, 'expression'),
    ClassProperty: ({ node }) => add(node.value, 'expression'),
    ClassPrivateProperty: ({ node }) => add(node.value, 'expression'),
  });
  return places;
}

/** Whether the statement does something where it stands. */
function isRun(node: types.Statement): boolean {
  if (types.isExportNamedDeclaration(node)) return node.declaration != null && isRun(node.declaration);
  return !(
    types.isImportDeclaration(node) ||
    types.isExportAllDeclaration(node) ||
    types.isExportDefaultDeclaration(node) ||
    types.isFunctionDeclaration(node) ||
    types.isTSInterfaceDeclaration(node) ||
    types.isTSTypeAliasDeclaration(node) ||
    types.isTSDeclareFunction(node) ||
    types.isEmptyStatement(node)
  );
}

/**
 * The source, which calls `hitPlace` of the module `hits` with the number of each place when it is reached. Numbers start
 * with `first`.
 */
export function withHits(source: string, places: readonly Place[], first: number, hits: string): string {
  const inserted = places.flatMap(({ start, end, kind }, index) => {
    const call = `hitPlace(${first + index})`;
    const size = end - start;
    const [before, after] = {
      statement: [`${call}; `, ''],
      body: [`{${call}; `, '}'],
      expression: [`(${call}, `, ')'],
    }[kind];
    // At one offset, ends stand before starts, the end of an inner part before that of an outer one, and the start of an
    // outer part before that of an inner one.
    return [
      { at: start, order: 1 / size, text: before! },
      { at: end, order: size - 1e9, text: after! },
    ];
  });
  if (inserted.length === 0) return source;
  inserted.sort((one, other) => one.at - other.at || one.order - other.order);
  const [mark] = source.match(/^#!.*\n/) ?? [''];
  let text = `${mark}import { hitPlace } from ${JSON.stringify(hits)}; `;
  let at = mark.length;
  for (const each of inserted) {
    text += source.slice(at, each.at) + each.text;
    at = each.at;
  }
  return text + source.slice(at);
}

/** The index of the place that must be reached before a change can be noticed; -1: the source is only loaded. */
export function placeOfChange(places: readonly Place[], { start, end, rule }: Change): number {
  let best = -1;
  // The body of a function is reached later than the function itself.
  if (rule === 'BlockStatement' || rule === 'ArrowFunction') {
    for (const [index, place] of places.entries())
      if (start <= place.start && place.end <= end && (best < 0 || place.start < places[best]!.start)) best = index;
    if (best >= 0) return best;
  }
  for (const [index, place] of places.entries())
    if (place.start <= start && end <= place.end && (best < 0 || isSmaller(place, places[best]!))) best = index;
  return best;
}

function isSmaller(one: Place, other: Place): boolean {
  return one.end - one.start < other.end - other.start;
}
