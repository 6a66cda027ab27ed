import { parseSync, traverse, types, type NodePath } from '@babel/core';

export { traverse, types };
export type { NodePath };

/** A node with its place in the text. */
export type Node = types.Node & { start: number; end: number };

/** The syntax tree of a TypeScript source. */
export function parse(source: string): types.File {
  const tree = parseSync(source, {
    configFile: false,
    babelrc: false,
    parserOpts: { plugins: ['typescript'], sourceType: 'module' },
  });
  if (tree?.type !== 'File') throw new Error('The source has no syntax tree.');
  return tree;
}

/** Where a node stands in the text. */
export function placeOf(node: types.Node): { start: number; end: number } {
  return { start: node.start!, end: node.end! };
}
