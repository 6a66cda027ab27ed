import type { Change } from './change.ts';
import { lostConditions } from './sql.ts';
import { placeOf, traverse, types, type NodePath } from './tree.ts';

type Made = Pick<Change, 'start' | 'end' | 'text' | 'rule'>;

/** The changes that the library does not make: a removed `await`, two swapped arguments, a lost condition of SQL. */
export function ownChanges(source: string, tree: types.File): Made[] {
  const made: Made[] = [];
  const textOf = (node: types.Node): string => source.slice(node.start!, node.end!);
  traverse(tree, {
    AwaitExpression({ node, parentPath }) {
      // The lint refuses a promise that nobody awaits.
      if (types.isExpressionStatement(parentPath.node)) return;
      // In parentheses, because what is awaited may bind less than `await`.
      const argument = textOf(node.argument);
      const text = types.isCallExpression(node.argument) ? argument : `(${argument})`;
      made.push({ ...placeOf(node), text, rule: 'RemovedAwait' });
    },
    'CallExpression|NewExpression'({ node }: NodePath<types.CallExpression | types.NewExpression>) {
      if (/^Math\.(?:max|min)$/.test(textOf(node.callee))) return;
      for (const [index, first] of node.arguments.entries()) {
        const second = node.arguments[index + 1];
        if (second === undefined || !canBeMistaken(first) || !canBeMistaken(second)) continue;
        if (textOf(first) === textOf(second)) continue;
        const between = source.slice(first.end!, second.start!);
        const text = textOf(second) + between + textOf(first);
        made.push({ start: first.start!, end: second.end!, text, rule: 'SwappedArguments' });
      }
    },
    'StringLiteral|TemplateLiteral'({ node }: NodePath<types.StringLiteral | types.TemplateLiteral>) {
      // Without the quotes.
      const [start, end] = [node.start! + 1, node.end! - 1];
      for (const each of lostConditions(source.slice(start, end)))
        made.push({ start: start + each.start, end: start + each.end, text: each.text, rule: 'LostCondition' });
    },
  });
  return made;
}

/** Whether an argument says too little of itself for a reader to see that it stands in the wrong place. */
function canBeMistaken(node: types.Node): boolean {
  return (
    types.isIdentifier(node) ||
    types.isMemberExpression(node) ||
    types.isOptionalMemberExpression(node) ||
    types.isNumericLiteral(node) ||
    (types.isTSNonNullExpression(node) && canBeMistaken(node.expression))
  );
}
