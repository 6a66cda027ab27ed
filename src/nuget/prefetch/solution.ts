import { posix } from 'node:path';
import type { NamedFiles } from '../../prefetch/inputs.ts';
import { malformed, type Input } from '../../prefetch/item.ts';
import { childrenOf, metadataValue, nameOf, parseProjectXml, type Ordered } from './xml.ts';

/** Most projects of a solution. */
const maxProjects = 2000;
/** Deepest folder of a project below its solution. */
const deepest = 32;

/** The projects of a solution (`.sln` or `.slnx`), and the files that say which packages they need. Throws `Invalid`. */
export function readSolution({ file, text }: Input): NamedFiles {
  const written = /\.slnx$/i.test(file) ? projectsInXml(file, text) : projectsInText(text);
  const named = [...new Set(written.map((each) => posix.normalize(each.replaceAll('\\', '/'))))].filter((each) =>
    /\.[a-z]+proj$/i.test(each),
  );
  if (named.length === 0) throw malformed(file, 0, 'the solution has no project');
  if (named.length > maxProjects) throw malformed(file, 0, `the solution has more than ${maxProjects} projects`);
  const near = new Set<string>();
  for (const path of named) {
    const folder = posix.dirname(path);
    const name = posix.basename(path).replace(/\.[a-z]+$/i, '');
    for (const each of ['packages.lock.json', `packages.${name}.lock.json`, 'packages.config'])
      near.add(posix.join(folder, each));
    const parts = folder.split('/').slice(0, deepest);
    for (let depth = 0; depth <= parts.length; depth += 1) {
      for (const each of ['Directory.Packages.props', 'global.json', '.config/dotnet-tools.json', 'dotnet-tools.json'])
        near.add(posix.join(...parts.slice(0, depth), each));
    }
  }
  return { named, near: [...near] };
}

/** https://learn.microsoft.com/visualstudio/extensibility/internals/solution-dot-sln-file */
function projectsInText(text: string): string[] {
  return text
    .split('\n')
    .map((line) => /^\s*Project\("[^"]*"\)\s*=\s*"[^"]*",\s*"([^"]*)"/.exec(line.slice(0, 5000))?.[1])
    .filter((path) => path !== undefined);
}

function projectsInXml(file: string, text: string): string[] {
  const projects = (element: Ordered): string[] =>
    nameOf(element) === 'Project' ? [metadataValue(element, 'path') ?? ''] : childrenOf(element).flatMap(projects);
  return projects(parseProjectXml(file, text, 'Solution'));
}
