import { readPublicKey } from '../../bundle/keys.ts';
import { readKeyStatement, readRevocation } from '../../bundle/statements.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { timeOf } from '../framework/schemas.ts';
import { wrongField } from '../prefetch/prefetch-form.ts';
import { keyItem } from './bundle-items.ts';
import {
  bundleKey,
  bundleKeyList,
  bundleKeyRequest,
  bundleRevocation,
  bundleRevocationRequest,
} from './bundle-schemas.ts';
import type { BundleOperationParts } from './bundles.ts';
import { bundleAllNames as allNames } from './imports.ts';

const action = 'operate';

/** `/bundles/keys`: the keys whose signatures are accepted. */
export function keyOperations({ trust, now }: Pick<BundleOperationParts, 'trust' | 'now'>): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/bundles/keys',
      id: 'listBundleKeys',
      summary: 'List the keys whose signatures are accepted, by name, and those that are revoked, the latest first',
      action,
      allNames,
      status: 200,
      answer: bundleKeyList,
      run: async () => ({
        items: (await trust.list()).map(keyItem),
        revoked: (await trust.revoked()).map(({ id, name, revokedBy, revokedAt }) => ({
          id,
          name,
          revoked_by: revokedBy,
          revoked_at: timeOf(revokedAt),
        })),
        next_cursor: null,
      }),
    }),
    operation({
      method: 'post',
      path: '/bundles/keys',
      id: 'trustBundleKey',
      summary:
        'Trust a public key, or change its name, its role and its end; or trust a new key, because a trusted one has signed so',
      action,
      allNames,
      lasting: true,
      body: bundleKeyRequest,
      status: 201,
      answer: bundleKey,
      run: async ({ body }) => {
        const { name, role, public_key: pem, statement } = body;
        const expiresAt = body.expires_at == null ? undefined : Date.parse(body.expires_at);
        if (expiresAt !== undefined && expiresAt <= now())
          throw wrongField('expires_at', 'Choose a time in the future.');
        const terms = { name, role, expiresAt };
        if ((pem === undefined) === (statement === undefined))
          throw wrongField('public_key', 'Send either a public key or a signed statement.');
        if (pem !== undefined)
          return keyItem(await refusedAt('public_key', () => trust.add(readPublicKey(`${pem}\n`, 'this'), terms)));
        const { key } = await refusedAt('statement', () =>
          trust.addSigned(readKeyStatement(statement!, 'this'), terms),
        );
        return keyItem(key);
      },
    }),
    operation({
      method: 'post',
      path: '/bundles/keys/revocations',
      id: 'revokeBundleKey',
      summary:
        'Never trust a key again, because a trusted key with the role revoke has signed so. What it has signed and was imported stays',
      action,
      allNames,
      lasting: true,
      body: bundleRevocationRequest,
      status: 201,
      answer: bundleRevocation,
      run: async ({ body }) => {
        const done = await refusedAt('statement', () => trust.revoke(readRevocation(body.statement, 'this')));
        const { id, name, revokedBy, revokedAt } = done.key;
        return {
          id,
          name,
          revoked_by: revokedBy,
          revoked_at: timeOf(revokedAt),
          vouched_for: done.vouched.map(keyItem),
        };
      },
    }),
    operation({
      method: 'delete',
      path: '/bundles/keys/:id',
      id: 'removeBundleKey',
      summary: 'Trust a key no more. What it has signed and was imported stays',
      action,
      allNames,
      params: { id: 'The ID of the key' },
      status: 204,
      run: async ({ params }) => {
        const known = (await trust.list()).some((each) => each.id === params['id']);
        if (!known) throw new DomainError('NotFound', 'No trusted key has this ID.');
        await trust.remove(params['id']!);
      },
    }),
  ];
}

/** Runs `work`, whose refusals are told beside a field. */
async function refusedAt<T>(field: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isDomainError(error, 'Invalid') && !isDomainError(error, 'Denied')) throw error;
    throw wrongField(field, error.message);
  }
}
