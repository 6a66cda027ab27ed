import { z } from 'zod';
import { protocolWords } from '../../config/protocols.ts';
import type { DeletedItem, DeletedItems } from '../../permanence/deleted.ts';
import { DomainError } from '../../runtime/errors.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { actor, bytes, listOf, time, timeOf } from '../framework/schemas.ts';
import { filterText, timedPage, timedQuery, countedTotal } from '../framework/sorted.ts';

const words = protocolWords.map(({ word }) => word);
/** Most characters of the reason of a purge. */
export const maxPurgeReason = 500;

const deletedItem = z
  .strictObject({
    id: z.string(),
    kind: z.enum(words),
    type: z.enum(['version', 'manifest', 'tag']),
    name: z.string(),
    reference: z.string().meta({ description: 'The version, the digest, or the tag' }),
    digest: z.string().meta({ description: 'Of the content; of a tag that of its manifest' }),
    size_bytes: bytes,
    deleted_at: time,
    deleted_by: actor.nullable().meta({ description: 'null without the scope admin' }),
    restorable_until: time,
  })
  .meta({ id: 'Deleted' });

export const deletedList = listOf(deletedItem).extend({
  total: countedTotal,
  deleted_for_seconds: z
    .number()
    .min(0)
    .meta({ description: 'How long what is deleted now can be restored: the setting `deletedFor`. 0 if it cannot' }),
});

export const restoredItem = z
  .strictObject({
    id: z.string(),
    left_tags: z.array(z.string()).meta({
      description:
        'Up to 100 tags that were deleted with a manifest and stay as they are, because they exist with another one now',
    }),
  })
  .meta({ id: 'Restored' });

const idParam = { id: 'The number of the deletion' };

/** `/deleted`: hosted content that was deleted and can be restored. */
export function deletedOperations(deleted: DeletedItems, deletedFor: number): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/deleted',
      id: 'listDeleted',
      summary:
        'List what was deleted and can be restored, the latest first. Tags that were deleted with their manifest are part of it',
      action: 'delete',
      query: timedQuery.extend({ q: filterText('Only names that contain this text, in any letter case') }),
      status: 200,
      answer: deletedList,
      run: async ({ principal, query }) => {
        const { accountId, names } = principal;
        const { entries, ...page } = await timedPage(query, {
          name: 'deleted',
          key: z.tuple([z.int()]),
          keyOf: ({ id }: DeletedItem) => [id] as [number],
          read: (limit, after, isOldest) => deleted.list(accountId, limit, { after: after?.[0], isOldest }),
          bytesOf: ({ type, size }) => (type === 'tag' ? 0 : size),
          isVisible:
            names || query.q !== ''
              ? ({ kind, name }) => {
                  const key = name.toLowerCase();
                  return key.includes(query.q) && (names?.of(kind).includes(key) ?? true);
                }
              : undefined,
        });
        const items = entries.map((each) => toItem(each, principal.scopes.has('admin')));
        return { items, ...page, deleted_for_seconds: deletedFor / 1000 };
      },
    }),
    operation({
      method: 'post',
      path: '/deleted/:id/restore',
      id: 'restoreDeleted',
      summary:
        'Restore a deleted version, manifest or tag as it was, with the tags, images and signatures that were deleted with it or after it',
      action: 'delete',
      params: idParam,
      status: 200,
      answer: restoredItem,
      run: async ({ principal, params }) => {
        const id = numberOf(params['id']!);
        const { left } = await deleted.restore(principal.accountId, id, principal.names);
        return { id: String(id), left_tags: left.slice(0, 100) };
      },
    }),
    operation({
      method: 'delete',
      path: '/deleted/:id',
      id: 'purgeDeleted',
      summary: 'Delete a deleted version, manifest or tag for good. The job gc frees its bytes',
      action: 'admin',
      params: idParam,
      query: z.object({
        reason: z
          .string('expected a reason')
          .trim()
          .min(1, 'expected a reason')
          .max(maxPurgeReason)
          .meta({ description: 'Why, for the audit' }),
      }),
      status: 204,
      run: async ({ principal, params, query }) => {
        await deleted.purge(principal.accountId, numberOf(params['id']!), query.reason, principal.names);
      },
    }),
  ];
}

function numberOf(text: string): number {
  if (/^[1-9]\d{0,14}$/.test(text)) return Number(text);
  throw new DomainError('NotFound', `This account has no deletion ${text.slice(0, 50)} that can be undone.`);
}

function toItem(item: DeletedItem, isAdmin: boolean): z.input<typeof deletedItem> {
  return {
    id: String(item.id),
    kind: protocolWords.find(({ kind }) => kind === item.kind)!.word,
    type: item.type,
    name: item.name,
    reference: item.reference,
    digest: item.digest,
    size_bytes: item.size,
    deleted_at: timeOf(item.deletedAt),
    deleted_by: isAdmin ? item.deletedBy : null,
    restorable_until: timeOf(item.endsAt),
  };
}
