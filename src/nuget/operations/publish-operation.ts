import { allow } from '../../accounts/allow.ts';
import { operation, type Operation } from '../../api/framework/operation.ts';
import { packageForm, publishedPackage } from '../../api/framework/schemas.ts';
import { contextOf } from '../../http/request-context.ts';
import { receivePackage, type PublishingParts } from '../feed/receive-package.ts';

/** `POST /v1/packages`: a push with a form, as a browser sends it. */
export function publishOperation(parts: PublishingParts): Operation {
  return operation({
    method: 'post',
    path: '/packages',
    id: 'publishPackage',
    summary: 'Publish a package, as a push to the feed does',
    action: 'write',
    cost: 'pushes',
    receives: { fields: packageForm, stores: true },
    status: 201,
    answer: publishedPackage,
    run: async ({ principal, receiving }) => {
      // The ID is known only after the package has arrived.
      allow(principal, 'write', 'package');
      Object.assign(contextOf(receiving!.response), { kind: 'package', act: 'upload' });
      return receivePackage(parts, { ...receiving!, principal });
    },
  });
}
