import { statusOf } from '../../api/framework/errors.ts';
import type { DomainError } from '../../runtime/errors.ts';
import { copyable } from './format.ts';
import { html } from './html.ts';
import { imagePath, packagePath, withQuery } from './links.ts';
import type { PageView } from './page.ts';

const titles: Record<number, string> = {
  401: 'Sign in',
  403: 'Not allowed',
  404: 'Not found',
  503: 'Not available now',
};

/** The page for an error; without one, for a bug. `requestId` finds the details in the log. */
export function failureView(error: DomainError | undefined, requestId: string, mayExplain = false): PageView {
  const status = error ? statusOf(error) : 500;
  const title = titles[status] ?? (status < 500 ? 'This does not work' : 'The server failed');
  const message = error?.message ?? 'The server failed because of a bug. Its log has the details.';
  const { kind, name, reference } = (error?.detail?.['explain'] ?? {}) as Partial<Record<string, string>>;
  const path = kind === 'package' ? packagePath(name!) : imagePath(name ?? '');
  const body = html`<p class="failure" role="alert">${message}</p>
    <p class="quiet">Request ${copyable(requestId)}</p>
    ${name && mayExplain && html`<p><a href="${withQuery('/console/explain', { kind, name, reference })}">Explain why</a></p>`}
    ${name && reference && html`<p><a href="${path}">${name}</a></p>`}
    ${status === 404 && html`<p><a href="/console/search">Search packages and images</a></p>`}
    <p><a href="/console/">Go to the overview</a></p>`;
  return { title, body, status };
}
