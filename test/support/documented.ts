import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';

// The answers of `/v1` that a test gets, compared with the document that clients read: no field more and none less.

interface Document {
  paths: Record<
    string,
    Record<string, { responses?: Record<string, { content?: Record<string, { schema: object }> }> }>
  >;
  components: { schemas: object };
}

const document = JSON.parse(
  readFileSync(join(import.meta.dirname, '../../docs/openapi.json'), 'utf8').replaceAll(
    '#/components/schemas/',
    '#/$defs/',
  ),
) as Document;

/** The paths as expressions, those with the most fixed text first. */
const paths = Object.keys(document.paths)
  .map((path) => ({ path, fixed: path.replaceAll(/\{\w+\}/g, '').length }))
  .toSorted((one, other) => other.fixed - one.fixed)
  .map(({ path }) => ({
    path,
    pattern: new RegExp(
      `^/v1${path
        .replaceAll(/[.]/g, '\\.')
        .replaceAll('{name}', '(?:.+)')
        .replaceAll(/\{\w+\}/g, '[^/]+')}$`,
    ),
  }));

const schemas = new Map<string, z.ZodType>();

function schemaOf(path: string, method: string, status: number): z.ZodType | undefined {
  const schema = document.paths[path]?.[method]?.responses?.[status]?.content?.['application/json']?.schema;
  if (!schema) return undefined;
  const key = `${method} ${path} ${status}`;
  const known = schemas.get(key) ?? z.fromJSONSchema({ ...schema, $defs: document.components.schemas } as never);
  schemas.set(key, known);
  return known;
}

/** Throws if a successful JSON answer of `/v1` is not what the document says. Other answers are not compared. */
export async function checkAnswer(target: string, method: string, response: Response): Promise<void> {
  const [path = ''] = target.split('?', 1);
  if (!path.startsWith('/v1/') || !response.ok) return;
  if (!response.headers.get('content-type')?.startsWith('application/json')) return;
  for (const { path: documented, pattern } of paths) {
    const schema = pattern.test(path) ? schemaOf(documented, method.toLowerCase(), response.status) : undefined;
    if (!schema) continue;
    const { error } = schema.safeParse(await response.clone().json());
    if (error) throw new Error(`${method} ${target} is not as documented at ${documented}: ${error.message}`);
    return;
  }
}
